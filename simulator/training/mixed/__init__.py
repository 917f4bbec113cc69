"""Steps whose stages or replicas lie on groups of different nodes: closed form and event engine."""

from simulator.training.mixed.analytic import predict_mixed
from simulator.training.mixed.engine import simulate_mixed
from simulator.training.mixed.step import GroupStep, MixedStep

__all__ = ["GroupStep", "MixedStep", "predict_mixed", "simulate_mixed"]
