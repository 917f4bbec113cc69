"""State off the device: memory, copies, updates, and refusals."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training.analytic import predict
from simulator.training.memory import memory
from simulator.training.sharding import Sharding
from simulator.training.step_graph.build import simulate
from simulator.training.tiers import Offload, best_share, binding

HOST = {"optimizer": {"host": 1.0}}


def scenario(cluster="dgx-a100-80gb", gpus=8, framework="deepspeed-zero3", model="llama2-7b", **plan):
    data = {
        "model": model,
        "cluster": cluster,
        "gpus": gpus,
        "workload": {"seq_len": 2048, "global_batch": 4 * gpus, "precision": "fp16"},
        "framework": framework,
        "plan": {"zero": 3, "recompute": "full", **plan},
    }
    return make_scenario(data, "test", Path())


def step(made):
    return predict(made.setting, Plans.of(made.plan))


def held(made):
    found = step(made)
    return memory(made.setting, Plans.of(made.plan), found.stages, found.parameters)


def fast_host(cluster="dgx-a100-80gb", rate=1e18):
    """A cluster whose host copies and CPUs take no time."""
    found = clusters.get(cluster).model_dump(mode="json", exclude_none=True)
    node = {"host_bytes": 1e13, "host_copy_bytes_s": rate, "cpu_adam_s_per_billion": 1e-12}
    return found | {"node": node}


def test_placement_of_nothing_is_todays_plan():
    plain, empty = scenario(), scenario(place={}, update={"on": "device"})
    assert float(step(empty).time[0]) == pytest.approx(float(step(plain).time[0]), rel=1e-12)
    assert held(empty).peak[0] == pytest.approx(held(plain).peak[0], rel=1e-12)


def test_bytes_leave_the_device_and_arrive_on_the_host():
    plain = held(scenario())
    moved = held(scenario(place={"optimizer": {"host": 0.5, "nvme": 0.25}}, update={"on": "host"}))
    state = plain.parts["optimizer"][0, 0]
    assert moved.parts["optimizer"][0, 0] == pytest.approx(state / 4)
    assert moved.on_tier("host")[0] == pytest.approx(8 * state / 2)
    assert moved.on_tier("nvme")[0] == pytest.approx(8 * state / 4)


def test_bytes_down_are_bytes_up_for_state_that_returns():
    made = scenario(place={"optimizer": {"host": 1.0}}, update={"on": "host", "share_on_device": 1.0})
    offload = Offload(Sharding(made.setting, Plans.of(made.plan)))
    update = offload.update(np.array([1e9]), np.array([0.01]))
    assert update.streams["to host"] == pytest.approx(update.streams["from host"])
    assert update.streams["cpu"][0] == 0


def test_the_best_share_is_where_both_sides_end_together():
    host, device = np.array([4.0]), np.array([1.0])
    share = best_share(host, device)
    assert share * device == pytest.approx((1 - share) * host)
    made = scenario(place=HOST, update={"on": "host", "share_on_device": "auto"})
    offload = Offload(Sharding(made.setting, Plans.of(made.plan)))
    owned, kernels = np.array([1e9]), np.array([0.05])
    best = offload.update(owned, kernels)
    assert 0 < best.share[0] < 1
    assert binding(best, 0) in best.streams
    for share in np.linspace(0, 1, 21):
        other = scenario(place=HOST, update={"on": "host", "share_on_device": float(share)})
        tried = Offload(Sharding(other.setting, Plans.of(other.plan))).update(owned, kernels)
        assert tried.seconds[0] >= best.seconds[0] * (1 - 0.02)


@pytest.mark.parametrize(
    "plan",
    [
        {"place": HOST, "update": {"on": "host"}},
        {"place": HOST, "update": {"on": "host", "delayed": True}},
        {"place": {"activations": {"host": 1.0}}, "recompute": "none"},
        {
            "place": {"parameters": {"host": 1.0}, "gradients": {"host": 1.0}, **HOST},
            "update": {"on": "host"},
        },
        {"place": {"optimizer": {"nvme": 1.0}}, "update": {"on": "host", "beside_backward": True}},
        {"place": {"optimizer": {"host": 1.0, "unit": "whole"}}, "update": {"on": "host"}},
        {"place": HOST, "update": {"on": "host", "share_on_device": "auto"}},
        {"place": {"gradients": {"host": 1.0, "prefetch": 0}, **HOST}, "update": {"on": "host"}},
        {"place": "zenflow"},
        {"place": "mlp-offload"},
        {"place": {"optimizer": {"host": 0.5, "unit": "chunk"}}, "update": {"on": "device"}},
    ],
)
def test_closed_form_and_engine_agree(plan):
    made = scenario(**plan)
    assert simulate(made.setting, made.plan).period == pytest.approx(float(step(made).time[0]), rel=0.02)


def test_an_infinite_link_gives_the_plan_without_offload():
    plain = scenario(framework="torch-fsdp", recompute="none")
    moved = scenario(
        cluster=fast_host(), framework="torch-fsdp", recompute="none", place={"activations": {"host": 1.0}}
    )
    link = moved.setting.cluster.device.kernels.calibration.host_copy.bandwidth
    assert float(step(moved).time[0]) >= float(step(plain).time[0])
    rates = Offload(Sharding(moved.setting, Plans.of(moved.plan))).rates
    assert rates.out == link  # a device's own link still limits it
    updated = scenario(cluster=fast_host(), place=HOST, update={"on": "host"})
    offload = Offload(Sharding(updated.setting, Plans.of(updated.plan)))
    assert offload.update(np.array([1e9]), np.zeros(1)).streams["cpu"][0] < 1e-9


def test_half_of_the_activations_are_free_where_a_copy_takes_a_layers_time():
    """PipeOffload's rule: what a layer's kernels last is free (Wan et al. 2025)."""
    made = scenario(place={"activations": {"host": 0.5}}, recompute="none")
    offload = Offload(Sharding(made.setting, Plans.of(made.plan)))
    layers, kept = np.array([32.0]), np.array([1e10])
    window = 0.5 * kept / offload.rates.out
    shown = offload.passes(kept, np.zeros(1), layers, window, window)
    assert shown[0] == pytest.approx(window / 32)


def test_kernels_wait_for_copies_without_prefetch():
    shares = {"host": 1.0, "prefetch": 0}
    turn, ahead = (
        scenario(place={"gradients": shares | extra}, recompute="none") for extra in ({}, {"prefetch": 1})
    )
    exposed = [float(step(made).seconds["offload"][0]) for made in (turn, ahead)]
    count = float(step(turn).parameters.total[0, 0])
    copied = 4 * 2 * count / 8 / Offload(Sharding(turn.setting, Plans.of(turn.plan))).rates.out
    assert exposed[0] == pytest.approx(copied)
    assert exposed[1] < exposed[0] / 4


def test_larger_units_hide_less():
    """A copy of the whole has nothing to run beside; one of a layer all but the last layer's."""
    shown = [
        float(step(scenario(place={"parameters": {"host": 1.0, "unit": unit}})).seconds["offload"][0])
        for unit in ("layer", "chunk", "sub-group", "whole")
    ]
    assert shown == sorted(shown) and shown[0] < shown[-1]


def test_an_update_in_sub_groups_is_quicker_than_in_turn():
    """n units through stages of a and b seconds take max(a, b) + min(a, b) / n (a pipeline's fill)."""
    times = {}
    for unit in ("layer", "whole"):
        made = scenario(place={"optimizer": {"host": 1.0, "unit": unit}}, update={"on": "host"})
        offload = Offload(Sharding(made.setting, Plans.of(made.plan)))
        update = offload.update(np.array([1e9]), np.array([0.01]))
        busy = [float(update.stages[name][0]) for name in ("to host", "cpu", "from host")]
        units = {"layer": made.setting.model.layers, "whole": 1}[unit]
        times[unit] = float(update.seconds[0])
        assert times[unit] == pytest.approx(max(busy) + (sum(busy) - max(busy)) / units)
    assert times["layer"] < times["whole"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"place": {"optimizer": {"host": 1.5}}}, "share from 0 to 1"),
        ({"place": {"optimizer": {"host": 0.8, "nvme": 0.4}}}, "shares add up to 1.2"),
        ({"place": {"optimizer": {"host": 0.8, "device": 0.4}}}, "not to 1"),
        ({"update": {"on": "host"}}, "state that lies on the device"),
        ({"place": {"parameters": {"host": 1.0}}, "zero": 1}, "place.parameters: needs parameters"),
        ({"place": {"optimizer": {"nvme": 1.0}}, "cluster": "leonardo", "gpus": 4}, "have no SSDs"),
        ({"place": HOST, "cluster": "l40s-8"}, "add node.host_bytes"),
        ({"update": {"on": "device", "master_on_device": True}}, "master_on_device: moments leave"),
        ({"place": {"optimizer": {"host": 1.0, "unit": "subgroup"}}}, "did you mean 'sub-group'"),
        ({"place": {"gradients": {"host": "auto"}}}, "gradients: auto is for"),
        ({"place": {"optimizer": {"host": 1.0, "prefetch": -1}}}, "place.optimizer.prefetch"),
        ({"place": {"optimiser": {"host": 1.0}}}, "did you mean 'optimizer'"),
    ],
)
def test_refusals_name_the_key(plan, words):
    with pytest.raises(InputError, match=words):
        scenario(**plan)


def test_moments_alone_leave_where_weights_stay():
    """Megatron Core's hybrid optimizer: 8 of 12 bytes leave, 4 go down and 4 come back for each parameter."""
    hybrid = {"on": "host", "master_on_device": True}
    plain = held(scenario(framework="megatron-core", zero=1))
    moved = scenario(framework="megatron-core", zero=1, place=HOST, update=hybrid)
    state = plain.parts["optimizer"][0, 0]
    assert held(moved).parts["optimizer"][0, 0] == pytest.approx(state / 3)
    assert held(moved).on_tier("host")[0] == pytest.approx(8 * state * 2 / 3)
    offload = Offload(Sharding(moved.setting, Plans.of(moved.plan)))
    update = offload.update(np.array([1e9]), np.zeros(1))
    assert update.streams["to host"][0] == pytest.approx(4e9 / offload.rates.out)
    assert update.streams["from host"][0] == pytest.approx(4e9 / offload.rates.back)
