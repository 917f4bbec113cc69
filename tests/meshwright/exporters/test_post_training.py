"""verl, NeMo RL and slime: files that state a plan, and read back as the same plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import meshwright as mw
from core.errors import InputError
from simulator.rl.scenario import make_rl

QUESTION = {
    "title": "GRPO",
    "model": "qwen3-30b-a3b",
    "cluster": "dgx-h100",
    "gpus": 32,
    "workload": {
        "kind": "rl",
        "algorithm": "grpo",
        "prompts": 64,
        "samples": 32,
        "mini_batch": 512,
        "input": 120,
        "output": {"kind": "lognormal", "median": 3000, "sigma": 0.5, "most": 3976},
    },
    "roles": {
        "train": {
            "framework": "megatron-core",
            "plan": {"tensor": 2, "sequence_parallel": True, "expert": 8, "pipeline": 2, "zero": 1}
            | {"recompute": "full"},
        },
        "generate": {"tensor": 4, "options": {"memory_share": 0.7}},
    },
}
SPLIT = {"train": 16, "generate": 16}
SCHEDULES = [
    {"kind": "synchronous"},
    {"kind": "one-step-off", "split": SPLIT},
    {"kind": "asynchronous", "staleness": 4.0, "split": SPLIT},
]
DENSE = {
    "model": "qwen3-8b",
    "framework": "verl",
    "roles": {
        "train": {"plan": {"zero": 3, "context": 2, "context_algorithm": "ulysses", "recompute": "full"}},
        "generate": {"tensor": 2, "options": {"memory_share": 0.6}},
    },
    "workload": QUESTION["workload"] | {"seq_len": 4096},
}


def same_plan(question, again, where):
    """Layouts, schedule and batches of both are the same."""
    first, second = (make_rl(each, where, Path()) for each in (question, again))
    assert second.plan == first.plan
    assert second.schedule == first.schedule
    fields = ("prompts", "samples", "mini_batch", "epochs")
    for field in fields:
        assert getattr(second.workload, field) == getattr(first.workload, field)
    pools = [setting.rollouts.pools[0] for setting in (first, second)]
    shape = [(pool.pool.tensor, pool.pool.pipeline, pool.pool.replicas) for pool in pools]
    assert shape[0] == shape[1]
    assert pools[0].options.memory_share == pools[1].options.memory_share
    assert second.algorithm.name == first.algorithm.name


def trained_by(framework, **train):
    """The question in one framework, whose own trainer runs it where it has one."""
    own = "nemo-rl" if framework == "nemo-rl" else QUESTION["roles"]["train"]["framework"]
    roles = QUESTION["roles"] | {"train": QUESTION["roles"]["train"] | {"framework": own} | train}
    return QUESTION | {"framework": framework, "roles": roles}


def round_trip(question, target, folder):
    """A question exported without gaps, and imported again."""
    assert not mw.export(question, target, folder).gaps
    return mw.import_(folder / f"{target}.yaml", cluster="dgx-h100").scenario


@pytest.mark.parametrize(
    "target, framework, schedule",
    [
        ("verl", "verl-megatron", SCHEDULES[0]),
        ("verl", "verl-megatron", SCHEDULES[2]),
        ("nemo-rl", "nemo-rl", SCHEDULES[1]),
        ("nemo-rl", "nemo-rl", SCHEDULES[2]),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else value,
)
def test_an_exported_plan_is_imported_as_the_same_plan(target, framework, schedule, tmp_path):
    question = trained_by(framework) | {"schedule": schedule}
    launch = mw.export(question, target, tmp_path)
    assert not launch.gaps
    imported = mw.import_(tmp_path / f"{target}.yaml", cluster="dgx-h100")
    assert imported.target == target
    same_plan(question, imported.scenario, target)


@pytest.mark.parametrize("target, framework", [("verl", "verl-megatron"), ("nemo-rl", "nemo-rl")])
def test_an_optimizer_on_the_host_and_rows_of_passes_come_back(target, framework, tmp_path):
    plan = QUESTION["roles"]["train"]["plan"] | {"place": "megatron-hybrid"}
    question = trained_by(framework, plan=plan, scoring_micro_batch=4)
    again = round_trip(question, target, tmp_path)
    same_plan(question, again, target)
    assert again["roles"]["train"]["scoring_micro_batch"] == 4


@pytest.mark.parametrize("library", ["deepep", "hybridep"])
@pytest.mark.parametrize("target, framework", [("verl", "verl-megatron"), ("nemo-rl", "nemo-rl")])
def test_the_flex_dispatcher_and_its_library_come_back(target, framework, library, tmp_path):
    plan = QUESTION["roles"]["train"]["plan"] | {"dispatcher": "flex", "dispatcher_library": library}
    question = trained_by(framework, plan=plan)
    same_plan(question, round_trip(question, target, tmp_path), target)


def test_slime_gets_the_flex_dispatcher_and_its_library():
    plan = QUESTION["roles"]["train"]["plan"] | {"dispatcher": "flex", "dispatcher_library": "deepep"}
    launch = mw.export(trained_by("slime", plan=plan), "slime")
    assert not launch.gaps
    assert "--moe-token-dispatcher-type flex" in launch.files["launch.sh"]
    assert "--moe-enable-deepep" in launch.files["launch.sh"]


def test_state_that_leaves_shared_devices_comes_back_from_verl(tmp_path):
    roles = {**DENSE["roles"], "train": {**DENSE["roles"]["train"], "offload": True}}
    again = round_trip({**QUESTION, **DENSE, "roles": roles}, "verl", tmp_path)
    assert again["roles"]["train"]["offload"] is True


def test_fsdp_with_ulysses_comes_back_from_verl(tmp_path):
    question = QUESTION | DENSE
    mw.export(question, "verl", tmp_path)
    imported = mw.import_(tmp_path / "verl.yaml", cluster="dgx-h100")
    same_plan(question, imported.scenario, "verl")
    assert imported.scenario["framework"] == "verl"


def test_files_are_yaml_of_the_launchers_keys(tmp_path):
    mw.export(QUESTION | {"framework": "nemo-rl"}, "nemo-rl", tmp_path)
    recipe = yaml.safe_load((tmp_path / "nemo-rl.yaml").read_text())
    assert recipe["policy"]["megatron_cfg"]["expert_model_parallel_size"] == 8
    assert recipe["cluster"] == {"num_nodes": 4, "gpus_per_node": 8}
    assert recipe["policy"]["generation"]["colocated"]["enabled"] is True


@pytest.mark.parametrize(
    "schedule, words",
    [
        ({"kind": "synchronous"}, ["train.py", "--colocate"]),
        ({"kind": "partial-rollouts", "extra": 0.5}, ["--partial-rollout", "--over-sampling-batch-size 96"]),
        ({"kind": "one-step-off", "split": SPLIT}, ["train_async.py", "--rollout-num-gpus 16"]),
    ],
)
def test_slime_gets_arguments_of_its_schedule(schedule, words):
    launch = mw.export(QUESTION | {"framework": "slime", "schedule": schedule}, "slime")
    script = launch.files["launch.sh"]
    for word in (*words, "--expert-model-parallel-size 8", "--rollout-num-gpus-per-engine 4"):
        assert word in script


@pytest.mark.parametrize(
    "target, changed, problem",
    [
        ("slime", {"framework": "verl-megatron"}, "sglang"),
        (
            "slime",
            {"framework": "slime", "schedule": {"kind": "asynchronous", "split": SPLIT}},
            "schedule.kind",
        ),
        (
            "nemo-rl",
            {"workload": QUESTION["workload"] | {"algorithm": "ppo"}},
            "NeMo RL has grpo, dapo, rloo",
        ),
        ("megatron-lm", {}, "takes training plans"),
        (
            "verl",
            {
                "schedule": {"kind": "one-step-off", "split": {"train": 12, "generate": 20}},
                "roles": {
                    "train": {"framework": "megatron-core", "plan": {"tensor": 2, "expert": 2}},
                    "generate": {"tensor": 2},
                },
            },
            "do not fill nodes",
        ),
    ],
)
def test_what_a_launcher_lacks_is_refused(target, changed, problem):
    with pytest.raises(InputError, match=problem):
        mw.export(QUESTION | changed, target)


def test_a_script_of_verl_is_read_with_its_variables():
    script = (
        "max_response_length=$((1024 * 8))\ntrain_tp=4\n"
        "python3 -m verl.trainer.main_ppo --config-name='ppo_megatron_trainer.yaml' "
        "data.train_batch_size=128 data.max_prompt_length=2048 "
        "data.max_response_length=${max_response_length} "
        "actor_rollout_ref.model.path=Qwen/Qwen3-8B-Base actor_rollout_ref.rollout.n=8 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=32 actor_rollout_ref.rollout.name=vllm "
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${train_tp} "
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.actor.use_kl_loss=True "
        "algorithm.adv_estimator=grpo trainer.nnodes=2 trainer.n_gpus_per_node=8\n"
    )
    imported = mw.import_(script, cluster="dgx-h100")
    scenario = imported.scenario
    assert (scenario["model"], scenario["gpus"]) == ("qwen3-8b", 16)
    assert scenario["roles"]["train"]["plan"]["tensor"] == 4
    assert scenario["workload"]["output"]["most"] == 8192
    assert scenario["workload"]["mini_batch"] == 256


def test_a_wrong_value_is_named_with_its_key(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("grpo: {num_prompts_per_step: many}\npolicy: {model_name: Qwen/Qwen3-8B}\n")
    with pytest.raises(InputError, match="whole number") as raised:
        mw.import_(file, cluster="dgx-h100")
    assert "grpo.num_prompts_per_step" in str(raised.value)


def test_environments_are_named_as_a_gap_of_launch_files(tmp_path):
    roles = {**QUESTION["roles"], "environment": {"seconds": 1.0, "node_cores": 64}}
    launch = mw.export(QUESTION | {"framework": "nemo-rl", "roles": roles}, "nemo-rl", tmp_path)
    assert any("roles.environment" in gap for gap in launch.gaps)


@pytest.mark.parametrize("target, gaps", [("nemo-rl", ["plan.virtual_pipeline = 2"]), ("verl", [])])
def test_a_field_is_expressed_where_a_key_states_it(target, gaps):
    plan = QUESTION["roles"]["train"]["plan"] | {"virtual_pipeline": 2}
    roles = QUESTION["roles"] | {"train": {"framework": "megatron-core", "packing": "pad", "plan": plan}}
    launch = mw.export(QUESTION | {"roles": roles}, target)
    assert [gap for gap in launch.gaps if "virtual" in gap] == gaps


def test_roles_apart_in_turn_are_no_asynchronous_recipe():
    question = trained_by("nemo-rl") | {"schedule": {"kind": "synchronous", "split": SPLIT}}
    recipe = yaml.safe_load(mw.export(question, "nemo-rl").files["nemo-rl.yaml"])
    assert recipe["grpo"]["async_grpo"]["enabled"] is False
    assert recipe["policy"]["generation"]["colocated"]["enabled"] is False
