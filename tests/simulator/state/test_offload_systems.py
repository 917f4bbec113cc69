"""Offload systems as plans, and shares left to the model."""

from pathlib import Path

import pytest

from core.errors import InputError
from simulator.offload import offload_systems
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training.analytic import predict
from simulator.training.memory import memory


def scenario(model="llama2-7b", gpus=8, **plan):
    data = {
        "model": model,
        "cluster": "dgx-a100-80gb",
        "gpus": gpus,
        "workload": {"seq_len": 2048, "global_batch": gpus, "precision": "fp16"},
        "framework": "deepspeed-zero3",
        "plan": plan,
    }
    return make_scenario(data, "test", Path())


def peak(made):
    step = predict(made.setting, Plans.of(made.plan))
    return float(memory(made.setting, Plans.of(made.plan), step.stages, step.parameters).peak[0])


@pytest.mark.parametrize("name", offload_systems.names())
def test_every_system_is_a_plan(name):
    made = scenario(place=name, recompute="full")
    plain = scenario(zero=made.plan.zero, recompute="full")
    assert made.plan.place is not None
    assert peak(made) <= peak(plain)
    assert float(predict(made.setting, Plans.of(made.plan)).time[0]) > 0
    assert made.plan.model_validate(made.plan.model_dump()) == made.plan


def test_fields_of_the_plan_replace_those_of_a_system():
    made = scenario(place="zero-offload", update={"on": "host", "delayed": True})
    assert made.plan.update.delayed
    with pytest.raises(InputError, match="did you mean 'zero-infinity'"):
        scenario(place="zero-infinite")


def test_only_what_must_leave_leaves():
    fits = scenario(place="deepcompile", recompute="full")
    assert fits.plan.place.optimizer.host == 0
    large = scenario(model="llama2-70b", place="deepcompile", recompute="full")
    capacity = large.setting.cluster.device.memory_bytes
    assert 0 < large.plan.place.optimizer.host < 1
    assert 0.98 * capacity < peak(large) <= capacity


def test_automatic_activations_are_free_but_for_the_ends():
    place = {"activations": {"host": "auto"}}
    plain, moved = scenario(zero=3), scenario(zero=3, place=place)
    share = moved.plan.place.activations.host
    assert 0 < share <= 1
    times = [float(predict(made.setting, Plans.of(made.plan)).time[0]) for made in (plain, moved)]
    assert times[1] / times[0] < 1.06
