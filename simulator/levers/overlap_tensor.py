"""Overlap of tensor-parallel traffic with products; the field is in ``Plan``."""

from typing import Any, Literal, get_args

import numpy as np

from simulator.levers.lever import Lever
from simulator.levers.rule import Columns, LeverSetting, ReleaseRule

TensorOverlap = Literal["none", "backward", "full", "flux", "t3", "domino", "ladder"]
LAUNCHED = 3
"""The first of these words have flags of launchers; the others are ``simulator.training.tensor_forms``."""
PROPOSED = get_args(TensorOverlap)[LAUNCHED:]
TENSOR_FORM = "tensor_form"
"""Name of the rule that a release has to offer one of these."""


def _mechanism(setting: LeverSetting, value: Any) -> tuple[str, ...]:
    # Runs of a release with one overlap are evidence for it, whatever it is called.
    sliced = "overlap_tensor" in setting.framework.offers and value == "full"
    if value in PROPOSED:
        return (f"tensor traffic beside kernels as {value}",)
    return ("tensor traffic beside slices of products",) if sliced else ()


def _launched(_: LeverSetting, plans: Columns) -> np.ndarray:
    return (plans.overlap_tensor < LAUNCHED) | (plans.tensor == 1)


def _offers_none(setting: LeverSetting) -> bool:
    return "overlap_tensor" not in setting.framework.offers


LEVER = Lever(
    "overlap_tensor",
    acts_on="overlap",
    relevant=lambda plan: plan.tensor > 1,
    mechanism=_mechanism,
    differs=lambda value: f"tensor overlap {value}",
    rules=(
        ReleaseRule(
            TENSOR_FORM,
            "flux, t3, domino and ladder run where a release's file offers them, and no shipped one does "
            "(docs/overlap.md)",
            (),
            ("overlap_tensor",),
            _launched,
            of_levers=False,
            bound=_offers_none,
        ),
    ),
)
