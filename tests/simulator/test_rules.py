"""The rules of a plan: what they let through can be predicted, and arrays decide as single plans do."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.rules import RULES, broken, check
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory
from simulator.workload import Training


@pytest.fixture(scope="module")
def setting():
    cluster = clusters.get("dgx-h100").resized(16)
    training = Training(seq_len=4096, global_batch=48)
    return Setting(models.get("mixtral-8x7b"), cluster, training, frameworks.get("megatron-core"))


@st.composite
def plans(draw):
    fields = {
        "tensor": draw(st.sampled_from([1, 2, 3, 4, 16])),
        "pipeline": draw(st.sampled_from([1, 2, 3, 4])),
        "virtual_pipeline": draw(st.sampled_from([1, 2, 3])),
        "context": draw(st.sampled_from([1, 2, 3])),
        "data": draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
        "expert": draw(st.sampled_from([1, 2, 3, 4])),
        "micro_batch": draw(st.sampled_from([1, 2, 5])),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "interleaved"])),
        "sequence_parallel": draw(st.booleans()),
        "context_algorithm": draw(st.sampled_from(["ring", "all_gather", "ulysses"])),
        "first_stage_layers": draw(st.sampled_from([0, 7, 15])),
        "zero": draw(st.sampled_from([0, 1, 2, 3])),
    }
    try:
        return Plan(**fields)
    except ValueError:
        assume(False)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_a_plan_that_no_rule_refuses_can_be_predicted(setting, plan):
    try:
        check(setting, plan)
    except InputError:
        assume(False)
    arrays = Plans.of(plan)
    step = predict(setting, arrays)
    assert np.isfinite(step.time[0])
    assert step.time[0] > 0
    assert memory(setting, arrays, step.stages, step.parameters).peak[0] > 0
    assert plan.devices == 16
    assert 48 % (plan.data * plan.micro_batch) == 0


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(several=st.lists(plans(), min_size=1, max_size=8))
def test_arrays_of_plans_are_decided_as_each_alone(setting, several):
    together = broken(setting, Plans.of(several))
    for index, plan in enumerate(several):
        alone = broken(setting, Plans.of(plan))
        assert {name: bool(mask[index]) for name, mask in together.items()} == {
            name: bool(mask[0]) for name, mask in alone.items()
        }


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans())
def test_every_broken_rule_is_explained_in_one_message(setting, plan):
    names = [name for name, mask in broken(setting, Plans.of(plan)).items() if mask[0]]
    assume(names)
    with pytest.raises(InputError) as refused:
        check(setting, plan, "file: plan")
    explained = [rule.explain(setting, plan) for rule in RULES if rule.name in names]
    assert all(words in str(refused.value) for words in explained)
    assert str(refused.value).startswith("file: plan: ")


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({"pipeline": 4, "data": 4}, True),
        ({"pipeline": 4, "data": 4, "first_stage_layers": 7, "last_stage_layers": 6}, False),
        ({"pipeline": 4, "data": 4, "first_stage_layers": 6, "last_stage_layers": 6}, True),
        ({"pipeline": 2, "data": 8, "first_stage_layers": 15, "last_stage_layers": 17}, True),
        ({"pipeline": 2, "data": 8, "first_stage_layers": 15, "last_stage_layers": 15}, False),
        ({"pipeline": 1, "data": 16, "first_stage_layers": 15}, False),
        ({"pipeline": 2, "data": 8, "first_stage_layers": 32, "last_stage_layers": -1}, True),
        ({"pipeline": 4, "data": 4, "first_stage_layers": 8, "last_stage_layers": -1}, True),
        ({"pipeline": 4, "data": 4, "last_stage_layers": -1}, True),
        (
            {
                "pipeline": 4,
                "data": 4,
                "virtual_pipeline": 2,
                "first_stage_layers": 4,
                "last_stage_layers": 12,
            },
            True,
        ),
        (
            {
                "pipeline": 4,
                "data": 4,
                "virtual_pipeline": 2,
                "first_stage_layers": 12,
                "last_stage_layers": -1,
            },
            False,
        ),
        ({"pipeline": 4, "data": 4, "virtual_pipeline": 8, "schedule": "interleaved"}, True),
        ({"pipeline": 4, "data": 4, "virtual_pipeline": 16, "schedule": "interleaved"}, False),
    ],
)
def test_layers_must_fall_whole_on_every_chunk(setting, fields, holds):
    assert broken(setting, Plans.of(Plan(**fields)))["layers"][0] != holds
