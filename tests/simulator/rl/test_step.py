"""One step of post-training: phases from a serving run and a training step."""

import math
from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.frames.rates import slowest
from simulator.plan import Plans
from simulator.rl.band import RESIDUAL, halves
from simulator.rl.roles import Environments
from simulator.rl.scenario import make_rl
from simulator.rl.step import predict_rl
from simulator.training import predict
from simulator.training.forward import forward_seconds
from simulator.uncertainty.bands import NINETY

QUESTION = {
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "workload": {
        "kind": "rl",
        "prompts": 16,
        "samples": 8,
        "input": 128,
        "output": {"kind": "lognormal", "median": 500, "sigma": 0.5, "most": 1920},
        "mini_batch": 64,
    },
    "roles": {"train": {"plan": {"zero": 1}}},
}
SPLIT = {"train": 4, "generate": 4}


def asked(**changes):
    question = QUESTION | {key: value for key, value in changes.items() if key not in ("workload", "roles")}
    for name in ("workload", "roles"):
        question[name] = QUESTION[name] | changes.get(name, {})
    return make_rl(question, "question.yaml", Path())


@pytest.fixture(scope="module")
def step():
    return predict_rl(asked())


def test_phases_are_those_of_the_halves(step):
    setting, plans = step.setting, Plans.of(step.setting.plan)
    assert step.phases.update == pytest.approx(2 * float(predict(setting.trainer, plans).time[0]))
    forward = float(forward_seconds(setting.trainer, plans)[0])
    assert step.passes == {"policy": pytest.approx(2 * forward), "reference": pytest.approx(2 * forward)}
    assert step.timing.seconds == pytest.approx(step.phases.total)


def test_forward_passes_run_over_all_answers_of_a_step_at_once(step):
    """With rows for more answers than a mini batch has, too."""
    train = QUESTION["roles"]["train"] | {"packing": "none", "scoring_micro_batch": 16}
    passes = [
        predict_rl(asked(workload={"mini_batch": size}, roles={"train": train}), engine=False).passes
        for size in (16, 64, None)
    ]
    assert passes[0] == passes[1] == passes[2]


def test_a_controller_moves_padded_answers_around_each_phase():
    """Rollouts end with two passes of padded answers; scorers and updates have one each."""
    plan = {"train": {"plan": {"zero": 3}}}
    one, longer = (
        asked(
            framework="verl",
            roles=plan,
            workload={"output": {**QUESTION["workload"]["output"], "most": most}},
        )
        for most in (1920, 4224)
    )
    assert one.host_s == pytest.approx(5 * one.host_pass_s)
    assert longer.host_pass_s / one.host_pass_s == pytest.approx((128 + 4224) / (128 + 1920))
    dapo = asked(framework="verl", roles=plan, workload={"algorithm": "dapo"})
    assert dapo.host_s == pytest.approx(4 * one.host_pass_s)
    beside = asked(framework="verl", roles=plan, schedule={"kind": "one-step-off", "split": SPLIT})
    assert beside.host_s == pytest.approx(4 * one.host_pass_s)
    assert asked().host_s == asked().host_pass_s  # NeMo RL's tokens pass once.


def test_a_forward_pass_takes_less_than_half_of_a_step(step):
    plans = Plans.of(step.setting.plan)
    whole = float(predict(step.setting.trainer, plans).time[0])
    assert 0.15 * whole < float(forward_seconds(step.setting.trainer, plans)[0]) < 0.5 * whole


def test_a_band_holds_errors_of_the_halves_and_a_residual(step):
    """A step in turn errs by both halves, each for its share of the step, and by what neither has."""
    phases, widths = (
        step.phases,
        halves(step.setting, predict(step.setting.trainer, Plans.of(step.setting.plan))),
    )
    shares = [(phases.scoring + phases.update) / phases.total, phases.generation / phases.total]
    own = math.hypot(*(share * width for share, width in zip(shares, widths, strict=True)))
    assert step.half_width == pytest.approx(math.hypot(own, NINETY * RESIDUAL), rel=0.02)


def test_tokens_of_answers_are_conserved(step):
    training = step.setting.trainer.training
    tokens = step.setting.workload.mini_batch * step.setting.workload.mean
    assert training.tokens == pytest.approx(tokens, rel=0.1)
    served = step.setting.rollouts.serving
    assert served.requests == 128


def test_busy_replicas_are_faster_than_a_batch_with_its_drain(step):
    assert 0 < step.phases.busy_generation < step.phases.generation


def test_the_same_seed_gives_the_same_step(step):
    again = predict_rl(asked()).phases
    assert (again.total, again.busy_generation) == (step.phases.total, step.phases.busy_generation)


def test_algorithms_differ_by_their_passes(step):
    without = predict_rl(asked(workload={"algorithm": "dapo"}))
    assert set(without.passes) == {"policy"}
    critic = predict_rl(asked(workload={"algorithm": "ppo"}))
    assert set(critic.passes) == {"policy", "reference", "reward", "critic"}
    assert critic.phases.update == pytest.approx(2 * step.phases.update)


def test_devices_of_their_own_wait_for_each_other():
    split = predict_rl(asked(schedule={"kind": "synchronous", "split": SPLIT}))
    ahead = predict_rl(asked(schedule={"kind": "one-step-off", "split": SPLIT}))
    assert ahead.timing.seconds < split.timing.seconds
    assert min(split.timing.idle.values()) > min(ahead.timing.idle.values())


RARELY_LONG = {"kind": "lognormal", "median": 500, "sigma": 0.5, "most": 200_000}
"""A law whose longest answer no context holds, and which hardly draws it."""


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"workload": {"mini_batch": 60}}, "no multiple of mini_batch"),
        ({"workload": {"seq_len": 1000}}, "below the longest answer"),
        ({"workload": {"output": RARELY_LONG}}, "the engine's context is"),
        ({"workload": {"algorithm": "gpro"}}, "did you mean 'grpo'"),
        ({"schedule": {"kind": "one-step-off"}}, "split"),
        (
            {"schedule": {"kind": "one-step-off", "split": {"train": 4, "generate": 2}}},
            "not the job's 8 devices",
        ),
        ({"schedule": {"kind": "asynchronous", "split": SPLIT, "staleness": -1}}, "staleness"),
        ({"roles": {"reward": "llama3.2-1b"}}, "grpo has no reward model"),
        ({"roles": {"generate": {"tensor": 3}}}, "no multiple of a replica's 3"),
        ({"roles": {"generate": {"tensr": 2}}}, "did you mean 'tensor'"),
        ({"workload": {"output": 200_000}}, "token"),
    ],
)
def test_wrong_questions_are_refused(changes, problem):
    with pytest.raises(InputError, match=problem):
        predict_rl(asked(**changes))


def test_calls_of_environments_wait_while_cores_are_free_and_decide_where_they_are_not(step):
    calls = {"seconds": 2.0, "calls": 5.0, "cores": 2.0}
    waiting = predict_rl(asked(roles={"environment": {**calls, "node_cores": 10**6}}))
    assert waiting.phases.generation == pytest.approx(step.phases.generation + 10.0)
    assert waiting.timing.binding == step.timing.binding
    short = predict_rl(asked(roles={"environment": {**calls, "node_cores": 1}}))
    nodes = short.setting.cluster.nodes_for(short.setting.cluster.devices)
    served = short.setting.workload.answers * 10.0 * 2.0 / nodes
    assert short.phases.generation == short.phases.environment == pytest.approx(served)
    assert short.timing.binding == "environment"
    assert step.cores is None
    enough = predict_rl(asked(roles={"environment": {**calls, "node_cores": math.ceil(short.cores or 0)}}))
    assert enough.timing.binding == step.timing.binding
    assert enough.phases.environment == pytest.approx(enough.phases.generation, rel=0.1)


def test_calls_that_differ_add_the_slowest_where_answers_are_alike_and_less_where_they_differ():
    """Independent ways: drawn ends of answers, and the expected maximum of a lognormal law by quantiles."""
    calls = Environments(seconds=2.0, calls=4.0, sigma=0.8, cores=1.0, node_cores=8)
    alike, drawn = np.full((64, 512), 100.0), np.random.default_rng(1).lognormal(6.0, 0.6, (64, 512))
    longest = calls.waits_s * slowest(512, 0.4)
    assert calls.added_s(30.0, alike) == pytest.approx(longest, rel=0.05)
    assert calls.waits_s < calls.added_s(30.0, drawn) < longest
    assert calls.added_s(1e9, drawn) == pytest.approx(calls.waits_s, rel=0.2)
    assert calls.model_copy(update={"sigma": 0.0}).added_s(30.0, drawn) == calls.waits_s
