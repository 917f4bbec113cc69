"""A plan's prediction does not depend on the plans that are predicted beside it."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.frameworks import frameworks
from simulator.plan import Choice, Plan, Plans
from simulator.rules import broken
from simulator.schedules import schedules
from simulator.training import predict
from simulator.training.memory import memory

DEVICES, PLANS, ALONE = 256, 300, 2
CLOSED = tuple(name for name, schedule in schedules.items() if schedule.has_closed_form)
VALUES = {
    "tensor": (1, 2, 4, 8),
    "pipeline": (1, 2, 4, 8),
    "virtual_pipeline": (1, 2, 4),
    "context": (1, 2),
    "expert": (1, 2, 8),
    "expert_tensor": (1, 2),
    "micro_batch": (1, 2),
    "sequence_parallel": (False, True),
    "zero": (0, 1, 2, 3),
    "shard_group": (0, 8),
    "first_stage_layers": (0, 3),
    "last_stage_layers": (0, 2),
    "overlap_gradients": (False, True),
    "overlap_parameters": (False, True),
    "overlap_expert": (False, True),
    "overlap_pipeline": (False, True),
    "schedule": range(len(CLOSED)),
    "recompute_modules": (-1, 0, 1, 0b10100),
} | {name: range(len(words)) for name, words in Choice.items()}
MODELS = {"gpt3-175b": "fp16", "deepseek-v3": "fp8", "gemma2-27b": "bf16", "llama4-scout": "bf16"}


def random_plans(setting, seed):
    """Plans of random fields that the rules allow; how layers divide is left open."""
    random = np.random.default_rng(seed)
    columns = {name: random.choice(np.array(values), PLANS) for name, values in VALUES.items()}
    columns["data"] = DEVICES // (columns["tensor"] * columns["context"] * columns["pipeline"])
    columns["virtual_pipeline"] = np.where(columns["pipeline"] > 1, columns["virtual_pipeline"], 1)
    plans = Plans(**columns, schedule_names=CLOSED)
    ranks = plans.tensor * plans.context * plans.data
    allowed = ranks % (plans.expert * plans.expert_tensor) == 0
    allowed &= (plans.tensor > 1) | ~plans.sequence_parallel
    allowed &= (plans.shard_group == 0) | (plans.data * plans.context % np.maximum(plans.shard_group, 1) == 0)
    for name, breaks in broken(setting, plans).items():
        if name != "layers":
            allowed &= ~breaks
    return plans.take(np.flatnonzero(allowed))


def figures(setting, plans):
    """Everything predicted of plans, by name; arrays of shape (plans,) last."""
    step = predict(setting, plans)
    held = memory(setting, plans, step.stages, step.parameters)
    seconds = {f"seconds of {name}": part for name, part in step.seconds.items()}
    moved = {f"communication of {name}": part for name, part in step.communication.items()}
    # A batch has a row for every class of stage that any plan has.
    stages = np.zeros((64, len(plans)))
    stages[: len(held.stages)] = -np.sort(-held.stages, axis=0)
    return {"time": step.time, "memory": stages, **seconds, **moved}


CASES = [(name, list(MODELS)[number % len(MODELS)]) for number, name in enumerate(frameworks.names())]
"""Every framework with one model in turn, and all models with one framework."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "model"), dict.fromkeys([*CASES, *(("megatron-core", model) for model in MODELS)])
)
def test_a_plan_alone_is_itself_in_a_batch(make_setting, framework, model):
    setting = make_setting(
        model, "dgx-h100", DEVICES, framework, seq_len=4096, global_batch=1024, precision=MODELS[model]
    )
    plans = random_plans(setting, seed=len(framework))
    assert len(plans) > 8
    together = figures(setting, plans)
    for index in range(0, len(plans), len(plans) // ALONE):
        for name, alone in figures(setting, plans.take(np.array([index]))).items():
            scale = np.abs(together["memory" if name == "memory" else "time"][..., index])
            apart = np.abs(together[name][..., index] - alone[..., 0])
            assert np.all(apart <= 1e-12 * scale), (name, plans.plan(index))


def test_plans_of_equal_degrees_may_hold_other_state(make_setting):
    """With multi-token prediction the layers of the last stage depend on the number of chunks."""
    setting = make_setting(
        "deepseek-v3", "dgx-h100", 1024, "megatron-bridge", seq_len=4096, global_batch=1024
    )
    degrees = {"tensor": 1, "pipeline": 8, "data": 128, "expert": 64, "zero": 1}
    one = Plan(**degrees)
    four = Plan(**degrees, virtual_pipeline=4, schedule="interleaved")
    together = figures(setting, Plans.of([one, four]))
    for index, plan in enumerate((one, four)):
        for name, alone in figures(setting, Plans.of(plan)).items():
            assert together[name][..., index] == pytest.approx(alone[..., 0], rel=1e-12), name
