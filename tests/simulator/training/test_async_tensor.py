"""Gains of torchtitan's asynchronous tensor parallelism beside its own measurements."""

from __future__ import annotations

import pytest

import meshwright as mw
from simulator.plan import Plan, Plans
from simulator.training.layer import layer

MEASURED = [
    ("llama3-70b", 256, 16, "full", "torchtitan", "bf16", 1.09),
    ("llama3-70b", 256, 16, "full", "torchtitan", "fp8", 1.16),
    ("llama3-8b", 64, 12, "selective", "torchtitan", "bf16", 1.10),
    ("llama3-8b", 64, 12, "selective", "torchtitan", "fp8", 1.10),
    ("llama3-8b", 64, 12, "selective", "torchtitan-rowwise", "fp8", 1.06),
]
"""Model, GPUs, micro batch, recomputation, release, format, and tokens/s with over tokens/s without; TP8 on
96 GB H100s at 500 W (pytorch/torchtitan b5bcd76c6, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md)."""


def gain_of(model, gpus, micro, recompute, release, precision):
    """Tokens/s with asynchronous tensor parallelism over those without, in closed form."""
    workload = {"seq_len": 8192, "global_batch": gpus // 8 * micro, "precision": precision}
    plan = {"tensor": 8, "micro_batch": micro, "recompute": recompute}
    question = {
        "model": model,
        "cluster": "h100-96gb",
        "gpus": gpus,
        "framework": release,
        "workload": workload,
    }
    none, full = (
        mw.simulate({**question, "plan": {**plan, "overlap_tensor": overlap}}).simulation.analytic_step_s
        for overlap in ("none", "full")
    )
    return none / full


@pytest.mark.parametrize("case", MEASURED)
def test_gain_lies_within_four_points_of_the_measured_one(case):
    *question, gain = case
    assert gain_of(*question) == pytest.approx(gain, abs=0.04)


def test_gain_of_70b_with_a_scale_a_row_is_missed():
    """4.5 points above the measured 1.04: the step is 15 % too fast without the overlap and 20 % with it, as
    row-wise scales cost more than predicted (docs/accuracy/training-causes.md). A mend removes this test."""
    gain = gain_of("llama3-70b", 256, 16, "full", "torchtitan-rowwise", "fp8")
    assert 1.04 + 0.04 < gain < 1.04 + 0.06


@pytest.mark.parametrize(("precision", "share"), [("bf16", 1 / 2), ("fp8", 1 / 3)])
def test_selective_recomputation_gathers_inputs_again_and_reduces_nothing(make_setting, precision, share):
    # Operands that are cast before they travel take half the bytes of the outputs that are reduced.
    setting = make_setting("llama3-8b", "dgx-h100", 8, "torchtitan", precision=precision)
    for micro, recompute, expected in ((8, "selective", share), (8, "full", 1.0), (8, "none", 0.0)):
        plans = Plans.of([Plan(tensor=8, sequence_parallel=True, micro_batch=micro, recompute=recompute)])
        (kind,) = setting.model.layer_groups
        costs = layer(setting, plans, kind)
        again = float(costs.recompute.tensor.total[0] / costs.forward.tensor.total[0])
        assert again == pytest.approx(expected, rel=0.05)
