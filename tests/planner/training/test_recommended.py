"""The recommended plan: of those on equal footing with the fastest, a measured one before a simpler one."""

from __future__ import annotations

import pytest

import meshwright as mw
from planner.training.measured_runs import RunEvidence
from planner.training.shortlist import SAFE
from simulator.uncertainty import chance_to_fit, even_footing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpus", "batch"),
    [("llama3.1-70b", 256, 512), ("llama3.1-8b", 64, 128), ("qwen3-30b-a3b", 64, 512)],
)
def test_an_unproven_plan_is_recommended_only_where_no_measured_one_that_fits_is_as_fast(model, gpus, batch):
    found = mw.plan(model=model, cluster="dgx-h100", gpus=gpus, seq_len=4096, global_batch=batch, every=True)
    first, known = found.best.plan, RunEvidence(found.result.setting)
    if not known.of(first).unproven:
        return
    every = next(found.scored.predictions(found.result.setting))
    times = every.step.time
    setting = found.result.setting
    fits = chance_to_fit(every.memory.peak, setting.cluster.device.memory_bytes, setting) >= SAFE
    close = (even_footing(times.min(), times) & fits).nonzero()[0]
    assert all(known.of(every.plans.plan(int(index))).unproven for index in close)
