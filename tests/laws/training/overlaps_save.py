"""Overlaps of a training step hide exchanges alone: it takes at least its kernels' time without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.plan import Choice
from simulator.training import predict
from tests.laws.answers import ROUNDING
from tests.laws.batches import batch, batches
from tests.laws.questions import Question, strategy

NUMBER = 18
QUESTIONS = strategy(batches)
CI = 6
KERNELS = (
    *("gemm", "grouped_gemm", "attention", "elementwise", "rope", "softmax", "activation", "norm", "copy"),
    *("recompute", "embedding", "cross_entropy", "optimizer"),
)
"""Parts of a step that are kernels of the model, of whichever it has."""
OVERLAPS = "overlap_gradients", "overlap_parameters", "overlap_pipeline", "overlap_expert"


def check(question: Question) -> None:
    """Compare the plans of a sample with their kernels where no overlap is on."""
    setting, plans = batch(question)
    off = {name: np.zeros(len(plans), bool) for name in OVERLAPS}
    off["overlap_tensor"] = np.full(len(plans), Choice["overlap_tensor"].index("none"))
    parts = predict(setting, replace(plans, **off)).seconds
    kernels = sum((parts[name] for name in KERNELS if name in parts), np.zeros(len(plans)))
    time = predict(setting, plans).time
    worst = int(np.argmin(time / kernels))
    assert time[worst] >= kernels[worst] * (1 - ROUNDING), (
        f"a step takes {time[worst]:.6g} s, its kernels {kernels[worst]:.6g} s: {plans.plan(worst)}"
    )
