"""Ops of lone plans that a setting keeps: predictions are those of a setting that never listed any."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.layout import model_ops
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory
from simulator.workload import Training

DENSE = [
    Plan(tensor=tensor, pipeline=pipeline, data=64 // tensor // pipeline, micro_batch=batch, zero=zero)
    for tensor in (4, 8)
    for pipeline, zero in ((1, 3), (2, 1), (8, 0))
    for batch in (1, 2)
]
EXPERTS = [
    Plan(pipeline=pipeline, virtual_pipeline=chunks, data=256 // pipeline, expert=32, micro_batch=1, zero=1)
    for pipeline, chunks in ((8, 1), (4, 1), (4, 2))
]
SCHEDULES = {1: "1f1b", 2: "interleaved"}
EXPERTS = [plan.model_copy(update={"schedule": SCHEDULES[plan.virtual_pipeline]}) for plan in EXPERTS]
EXPERTS += [
    plan.model_copy(update={"overlap_expert": True, **levers})
    for plan in EXPERTS
    for levers in ({}, {"graphs": "layer"}, {"recompute": "full"})
    if plan.virtual_pipeline == 2
]


def setting_of(model: str, devices: int) -> Setting:
    cluster = clusters.get("dgx-h100").resized(devices)
    return Setting(
        models.get(model),
        cluster,
        Training(seq_len=4096, global_batch=1024),
        frameworks.get("megatron-bridge"),
    )


@pytest.mark.parametrize(
    ("model", "plans"), [("llama3-70b", DENSE), ("deepseek-v3", EXPERTS)], ids=["dense", "experts"]
)
def test_predictions_do_not_depend_on_those_before(model: str, plans: list[Plan]) -> None:
    shared = setting_of(model, plans[0].devices)
    for plan in [*plans, *plans]:
        rows, fresh = Plans.of([plan]), setting_of(model, plans[0].devices)
        kept, alone = predict(shared, rows), predict(fresh, rows)
        assert kept.seconds.keys() == alone.seconds.keys()
        for name, seconds in alone.seconds.items():
            np.testing.assert_array_equal(kept.seconds[name], seconds)
        for name, cost in alone.sent.items():
            np.testing.assert_array_equal(kept.sent[name].seconds, cost.seconds)
        held, of_one = (
            memory(setting, rows, step.stages, step.parameters).peak
            for setting, step in ((shared, kept), (fresh, alone))
        )
        np.testing.assert_array_equal(held, of_one)


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of("llama3-8b", 64)
    monkeypatch.setattr(model_ops, "MOST_LAYOUTS", 8)
    for batch in range(1, 20):
        predict(setting, Plans.of([Plan(data=64, micro_batch=batch)]))
        assert len(setting.of(Plan()).layouts) <= 8 + 1
