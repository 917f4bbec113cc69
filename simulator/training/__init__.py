"""Training: the closed form of a step, and its task graph for the event engine."""

from simulator.training.analytic import Step, micro_batches, predict, step_time
from simulator.training.boundary import boundary_transfer, tied_embedding

__all__ = ["Step", "boundary_transfer", "micro_batches", "predict", "step_time", "tied_embedding"]
