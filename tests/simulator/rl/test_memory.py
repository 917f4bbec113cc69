"""Memory of both halves of a step: what stays on a device, and what lies beside the trainer's step."""

from pathlib import Path

import pytest

from core.errors import InputError
from simulator.ops.counts import model_parameters
from simulator.rl.memory import sleeping_bytes
from simulator.rl.scenario import make_rl
from simulator.rl.step import predict_rl

QUESTION = {
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "workload": {"kind": "rl", "prompts": 16, "samples": 8, "input": 128, "output": 512, "mini_batch": 64},
    "roles": {"train": {"plan": {"zero": 1}}},
}
SPLIT = {"kind": "one-step-off", "split": {"train": 4, "generate": 4}}


def asked(plan=None, train=None, **changes):
    roles = {"train": {"plan": plan or {"zero": 1}, **(train or {})}}
    return predict_rl(make_rl({**QUESTION, "roles": roles, **changes}, "question.yaml", Path()))


def test_state_is_weights_and_what_the_optimizer_shards():
    step = asked()
    parameters = model_parameters(step.setting.model)
    assert step.memory.state == pytest.approx((2 + 12 / 8) * parameters, rel=0.05)


def test_state_that_stays_costs_no_time_and_takes_room_of_rollouts():
    moved, stays = asked(train={"offload": True}), asked(train={"offload": False})
    assert moved.phases.state == pytest.approx(moved.memory.state / moved.setting.framework.state_bytes_s)
    assert stays.phases.state == 0.0
    assert stays.memory.rollouts == pytest.approx(moved.memory.rollouts + moved.memory.state)


def test_an_optimizer_on_the_host_stays_there():
    on_host = asked({"zero": 1, "place": "megatron-hybrid"})
    assert on_host.memory.state < asked().memory.state


def test_an_engine_that_sleeps_lies_beside_the_trainer_on_shared_devices_alone():
    assert asked().memory.beside > 1e9
    assert asked(schedule=SPLIT).memory.beside == 0.0


@pytest.mark.parametrize("tensor", [1, 2])
def test_deepspeeds_workspace_is_that_of_its_code(tensor):
    """GenWorkSpace: a cache and scores that ranks share, activations that they do not."""
    ppo = {**QUESTION["workload"], "algorithm": "ppo"}
    chat = {"framework": "deepspeed-chat", "model": "opt-6.7b", "workload": ppo}
    generate = {"tensor": tensor, "options": {"max_sequences": 16}}
    roles = {"train": {"plan": {"zero": 3}}, "generate": generate}
    setting = make_rl({**QUESTION, **chat, "roles": roles}, "question.yaml", Path())
    layers, heads, hidden, longest = 32, 32, 4096, 640
    shared = 2 * layers * hidden + heads * longest
    assert sleeping_bytes(setting) == pytest.approx(16 * longest * 2 * (10 * hidden + shared / tensor))


def test_a_critic_and_scorers_on_the_device_take_memory():
    ppo = {**QUESTION["workload"], "algorithm": "ppo"}
    zero3 = {"zero": 3}
    without = asked(zero3, framework="openrlhf", schedule=SPLIT)
    critic = asked(zero3, framework="openrlhf", schedule=SPLIT, workload=ppo)
    assert critic.memory.state == pytest.approx(2 * without.memory.state)
    weights = 2 * model_parameters(critic.setting.model) / 4
    assert critic.memory.beside - without.memory.beside == pytest.approx(without.memory.state + weights)


def test_more_than_a_device_holds_does_not_fit():
    wide = asked(model="qwen3-32b", roles={"train": {"plan": {"zero": 1}}, "generate": {"tensor": 8}})
    assert not wide.memory.fits


def test_a_degree_that_the_system_lacks_is_refused():
    with pytest.raises(InputError, match="no such degree; it has data, context"):
        asked({"zero": 3, "pipeline": 2}, framework="verl")


def test_a_stage_of_zero_that_the_system_lacks_is_refused_for_its_own_trainer_alone():
    with pytest.raises(InputError, match="shards by 0, 1, found 3"):
        asked({"zero": 3})
    assert asked({"zero": 3}, {"framework": "torch-fsdp-eager"}).memory.fits


def test_wider_forward_passes_are_no_slower_and_leave_updates_as_they_are():
    one, four = asked(), asked(train={"scoring_micro_batch": 4})
    assert four.phases.scoring <= one.phases.scoring
    assert four.phases.update == one.phases.update
