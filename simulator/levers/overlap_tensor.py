"""Overlap of tensor-parallel traffic with products; the field is in ``Plan``."""

from typing import Any

from simulator.levers.lever import Lever
from simulator.levers.rule import LeverSetting


def _mechanism(setting: LeverSetting, value: Any) -> tuple[str, ...]:
    # Runs of a release with one overlap are evidence for it, whatever it is called.
    sliced = "overlap_tensor" in setting.framework.offers and value == "full"
    return ("tensor traffic beside slices of products",) if sliced else ()


LEVER = Lever(
    "overlap_tensor",
    acts_on="overlap",
    relevant=lambda plan: plan.tensor > 1,
    mechanism=_mechanism,
    differs=lambda value: f"tensor overlap {value}",
)
