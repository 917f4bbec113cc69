"""Synchronisation policies: what groups send, and what a step waits for."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.state.sync import Sync
from simulator.training.analytic import predict, step_time
from simulator.training.memory import memory
from simulator.training.outer import OuterExchange
from simulator.training.sharding import Sharding
from simulator.training.step_graph.build import simulate

DILOCO = {"every": 100, "payload": "int8", "groups": 4, "link_gbps": 1.0}


def scenario(sync=None, gpus=32, **plan):
    data = {
        "model": "llama2-7b",
        "cluster": "dgx-h100",
        "gpus": gpus,
        "workload": {"seq_len": 2048, "global_batch": gpus * 4},
        "framework": "torch-fsdp",
        "plan": {"zero": 3, "recompute": "full", **plan, **({"sync": sync} if sync else {})},
    }
    return make_scenario(data, "test", Path())


def seconds(made):
    return float(predict(made.setting, Plans.of(made.plan)).time[0])


def exchange(made):
    step = predict(made.setting, Plans.of(made.plan))
    sharding = Sharding(made.setting, Plans.of(made.plan))
    held = step.parameters.total[0]
    return OuterExchange.of(sharding, sharding.owned(held, np.zeros(1)), held)


def test_an_exchange_in_every_step_is_todays_step():
    assert seconds(scenario({"every": 1, "outer": "average"})) == seconds(scenario())


def test_groups_exchange_nothing_inside_a_step():
    made = scenario({**DILOCO, "outer": "none"})
    sharding = Sharding(made.setting, Plans.of(made.plan))
    assert sharding.dense.shard[0] == 8
    assert sharding.dense.replicas[0] == 1
    step = predict(made.setting, Plans.of(made.plan))
    assert step.sent["parameters"].bytes[-1, 0] == 0
    assert step.seconds["sync"][0] == 0


def test_bytes_fall_with_the_interval_and_the_payload():
    """A ring of 32-bit differences each step against 8 bits every 100th: 400 times fewer bytes."""
    every, rare = exchange(scenario({**DILOCO, "every": 2, "payload": "fp32"})), exchange(scenario(DILOCO))
    assert (every.bytes[0] / 2) / (rare.bytes[0] / 100) == pytest.approx(4 * 50, rel=0.01)


def test_late_exchanges_hide_behind_steps():
    base, none = seconds(scenario({**DILOCO, "outer": "none"})), exchange(scenario(DILOCO))
    whole = float(none.seconds[0])
    waits = seconds(scenario(DILOCO)) - base
    assert waits == pytest.approx((whole + float(none.kernels[0])) / 100, rel=1e-6)
    inner = seconds(scenario({**DILOCO, "late": "inner-step", "fragments": 4})) - base
    assert inner == pytest.approx((whole - 4 * base + float(none.kernels[0])) / 100, rel=1e-3)
    outer = seconds(scenario({**DILOCO, "late": "outer-step"})) - base
    assert outer <= max(whole / 100 - base, 0) + float(none.kernels[0]) / 100 + 1e-9


@pytest.mark.parametrize(
    "more",
    [{}, {"late": "inner-step"}, {"late": "outer-step"}, {"leaves_per_day": 4.0, "blocks_joins": True}],
)
def test_both_timings_agree(more):
    made = scenario({**DILOCO, **more})
    assert simulate(made.setting, made.plan).period == pytest.approx(seconds(made), rel=0.02)
    assert step_time(made.setting, Plans.of(made.plan))[0] == pytest.approx(seconds(made))


def test_groups_that_leave_make_long_rounds_dear():
    """The best period is Young's (1974): the square root of twice the cost over the rate of departures."""
    periods = (50, 100, 150, 200, 250, 300, 400, 600, 1200, 2400)
    often = {"leaves_per_day": 8.0, "timeout_s": 0.0}
    steps = [seconds(scenario({**DILOCO, "every": every, **often})) for every in periods]
    best = periods[int(np.argmin(steps))]
    step = seconds(scenario({**DILOCO, "outer": "none"}))
    young = np.sqrt(2 * float(exchange(scenario(DILOCO)).seconds[0]) * 86400 / 8.0) / step
    assert best == pytest.approx(young, rel=0.3)
    assert min(steps[0], steps[-1]) > min(steps)
    # Without departures a longer round is never slower.
    stay = [seconds(scenario({**DILOCO, "every": every})) for every in periods]
    assert stay == sorted(stay, reverse=True)


def test_joins_that_block_cost_more_than_those_that_do_not():
    plain, beside, blocks = (
        seconds(scenario({**DILOCO, **more}))
        for more in ({}, {"leaves_per_day": 1.0}, {"leaves_per_day": 1.0, "blocks_joins": True})
    )
    assert plain < beside < blocks


def test_the_outer_optimizer_is_held():
    plain, apart = scenario({**DILOCO, "outer": "none"}), scenario(DILOCO)
    held = []
    for made in (plain, apart):
        plans = Plans.of(made.plan)
        step = predict(made.setting, plans)
        held.append(memory(made.setting, plans, step.stages, step.parameters).parts["optimizer"][0, 0])
    count = predict(apart.setting, Plans.of(apart.plan)).parameters.total[0, 0] / 8
    assert held[1] - held[0] == pytest.approx(8 * count)


@pytest.mark.parametrize(
    ("sync", "words"),
    [
        ({"every": 0}, "sync.every"),
        ({"every": 100, "fragments": 64, "groups": 4}, "64 fragments are more than the 32 layers"),
        ({"every": 4, "fragments": 8}, "do not fit into every = 4"),
        ({"every": 100, "groups": 5}, "do not divide into 5 groups"),
        ({"every": 1, "payload": "int8"}, "wire.reduce"),
        ({"every": 10, "link_gbps": 0.0}, "sync.link_gbps"),
    ],
)
def test_refusals_name_the_key(sync, words):
    with pytest.raises(InputError, match=words):
        scenario(sync)


def test_a_window_of_tcp_limits_a_link_by_its_round_trip():
    far, near = (
        Sync.model_validate({"every": 100, "latency_s": latency, "window_bytes": 1e7})
        for latency in (0.1, 0.01)
    )
    assert far.link_bytes_s == pytest.approx(1e7 / 0.2)
    assert near.link_bytes_s == pytest.approx(10 * far.link_bytes_s)
    wide = Sync.model_validate({"every": 100, "latency_s": 0.01, "window_bytes": 1e9, "link_gbps": 1.0})
    assert wide.link_bytes_s == 1e9 / 8
    with pytest.raises(ValueError, match="latency_s is 0"):
        Sync.model_validate({"every": 100, "window_bytes": 1e7})
