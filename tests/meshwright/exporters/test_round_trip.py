"""A plan that goes out to a launcher's files and comes back is the same plan."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, assume, given, settings

from core.errors import InfeasibleError, InputError
from tests.laws.questions import strategy
from tests.meshwright.exporters.plans_out import FRAMEWORKS, TOLD, returned, scenario_for


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(TOLD))
def test_plans_return_as_they_left(target, tmp_path_factory):
    folder, seen = tmp_path_factory.mktemp(target), set()

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(scenario=strategy(partial(scenario_for, target=target)))
    def check(scenario):
        try:
            left, came = returned(target, scenario, folder)
        except (InputError, InfeasibleError):
            assume(False)
        assert came == left
        seen.add(str(scenario))

    check()
    assert len(seen) >= 160  # different plans, not one again and again


@pytest.mark.parametrize("target", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize(
    ("pipeline", "chunks", "ends"), [(2, 3, (40, 40)), (4, 7, (19, 19)), (2, 1, (42, 38))]
)
def test_chunks_that_do_not_divide_the_layers_return_as_they_left(target, pipeline, chunks, ends, tmp_path):
    plan = {
        "tensor": 4,
        "sequence_parallel": True,
        "pipeline": pipeline,
        "virtual_pipeline": chunks,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
        "data": 16 // pipeline,
        "first_stage_layers": ends[0],
        "last_stage_layers": ends[1],
    }
    workload = {"seq_len": 4096, "global_batch": 512, "precision": "bf16"}
    job = {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 64, "framework": FRAMEWORKS[target]}
    left, came = returned(target, {**job, "workload": workload, "plan": plan}, tmp_path)
    assert came == left
