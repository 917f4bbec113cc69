"""Rates of simulators: limits, a queue run event by event, EnvPool's rows, and what is refused."""

import heapq
from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from evidence.accuracy.errors import Spread
from evidence.accuracy.frames_rows import measured_rows
from simulator.frames.question import make_frames
from simulator.frames.rates import keeping_up, predict_frames, slowest
from simulator.frames.samplers import samplers

POLICY = {"layers": [{"inputs": 256, "outputs": 32, "rows": 400}, {"inputs": 3136, "outputs": 512}]}
BASE = {
    "cluster": "dgx-a100-80gb",
    "workload": {"kind": "frames", "frames": 4},
    "environments": {"seconds": 1e-3, "cores": 64},
}


def rates(**changes):
    data = {**BASE}
    for key, value in changes.items():
        data[key] = {**BASE[key], **value} if key in BASE and isinstance(value, dict) else value
    return predict_frames(make_frames(data, "test", Path()))


@pytest.mark.parametrize("name", samplers.names())
def test_no_sampler_steps_faster_than_its_cores(name):
    assert rates(sampler=name).steps_s <= 64 / 1e-3 * (1 + 1e-12)


def test_random_actions_of_the_first_results_take_all_cores():
    found = rates(sampler="envpool-async")
    assert (found.steps_s, found.frames_s) == pytest.approx((64e3, 256e3))
    assert found.binding == "environments"


def test_steps_that_are_alike_lose_nothing_to_the_slowest():
    free = {"name": "free", "title": "free"} | {
        key: {"value": value, "kind": "assumed", "source": "test"}
        for key, value in {"waits": "all", "parallel": True, "cycle_s": 0.0, "environment_s": 0.0}.items()
    }
    assert rates(sampler=free, environments={"sigma": 0.0}).steps_s == pytest.approx(64e3)
    assert rates(sampler=free).steps_s == pytest.approx(64e3 / slowest(64, 0.4))


def test_a_loop_has_the_rate_of_one_core():
    assert rates(sampler="for-loop").steps_s == pytest.approx(1e3)


def test_the_slowest_draw_is_that_of_drawn_numbers():
    drawn = np.random.default_rng(0).lognormal(-0.08, 0.4, (20_000, 32)).max(axis=1).mean()
    assert slowest(32, 0.4) == pytest.approx(drawn, rel=0.01)


def queue(cores, count, batch, seconds, inference, sigma, ends):
    """Steps a second of a closed network, event by event: cores step, one device acts on what waits."""
    random = np.random.default_rng(0)
    ready, free, waiting, running, now, steps = count, cores, 0, [], 0.0, 0
    device_free = True
    while steps < ends:
        while free and ready:
            free, ready = free - 1, ready - 1
            draw = seconds * random.lognormal(-(sigma**2) / 2, sigma)
            heapq.heappush(running, (now + draw, 0, 1))
        if device_free and waiting:
            acted = min(waiting, batch)
            waiting, device_free = waiting - acted, False
            heapq.heappush(running, (now + inference, 1, acted))
        now, kind, number = heapq.heappop(running)
        if kind:
            device_free, ready = True, ready + number
        else:
            free, waiting, steps = free + 1, waiting + 1, steps + 1
    return steps / now


@pytest.mark.parametrize(("each", "cores"), [(1, 64), (2, 64), (2, 512), (8, 512)])
def test_rounds_are_those_of_a_queue_run_event_by_event(each, cores):
    found = rates(model=POLICY, environments={"cores": cores, "each": each})
    run = queue(cores, found.setting.count, found.batch, 1e-3, found.inference_s, 0.4, 40_000)
    assert found.steps_s == pytest.approx(run, rel=0.1)


def test_a_learner_in_turn_adds_its_time():
    beside, turn = (
        rates(model=POLICY, workload={"batch": 4096}, sampler="envpool", learner=learner)
        for learner in ("beside", "in-turn")
    )
    alone = rates(model=POLICY, sampler="envpool")
    assert 4096 / turn.steps_s == pytest.approx(4096 / alone.steps_s + turn.learner_s)
    assert alone.steps_s >= beside.steps_s > turn.steps_s


@pytest.mark.parametrize("sampler", ["envpool-async", "envpool"])
def test_environments_keep_up_from_some_cores_on(sampler):
    learns = {"model": POLICY, "workload": {"batch": 16384, "epochs": 8}, "sampler": sampler}
    cores = keeping_up(rates(**learns).setting)
    assert [
        rates(**learns, environments={"cores": cores + more}).binding == "environments" for more in (-1, 0)
    ] == [
        True,
        False,
    ]
    assert keeping_up(rates(sampler=sampler).setting) is None


def test_cores_that_act_step_less():
    acting = rates(model=POLICY, inference={"place": "cores", "core_flops": 1e9})
    seconds = 1e-3 + acting.setting.model.flops / 1e9
    assert acting.steps_s == pytest.approx(64 / seconds)


def test_observations_from_other_nodes_cross_the_network():
    near, far = (
        rates(model=POLICY, environments={"cores": 128, "observation_bytes": 1e7, "nodes": nodes})
        for nodes in (None, 400)
    )
    assert near.binding == "host link" and "network" not in near.bounds
    assert far.bounds["network"] == pytest.approx(far.setting.cluster.rates.wire / 1e7)


def test_machines_of_envpools_benchmark():
    """One spread and the shipped host times: steps of one thread, 1 to 256 threads, two environments."""
    errors = {"all": [], "first": []}
    for row in measured_rows():
        found = predict_frames(row.setting).frames_s
        errors[row.setting.sampler.waits].append(found / row.frames_s - 1)
    waiting, first = (Spread.of(values) for values in errors.values())
    assert waiting.median < 0.16 and waiting.p90 < 0.36
    assert first.median < 0.12 and first.p90 < 0.3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"workload": {"batch": 64}}, "needs a model"),
        ({"model": POLICY, "inference": {"devices": 1}}, "inference.devices"),
        ({"model": POLICY, "inference": {"place": "apart"}}, "inference.devices"),
        (
            {"model": POLICY, "workload": {"batch": 64}, "inference": {"place": "apart", "devices": 1}},
            "the learner needs one",
        ),
        ({"sampler": "envpol"}, "envpool"),
        ({"environments": {"seconds": 0}}, "seconds"),
        ({"gpus": 1000000}, "gpus"),
    ],
)
def test_wrong_questions_say_what_is_wrong(changes, words):
    with pytest.raises(InputError, match=words):
        rates(**changes)
