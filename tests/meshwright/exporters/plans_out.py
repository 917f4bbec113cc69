"""Plans that a launcher's files can express, as they go out to the files and come back."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path

from core.errors import InfeasibleError
from meshwright.exporters import export
from meshwright.exporters.facts import chosen_levers, moot
from meshwright.exporters.imports import read_launch
from meshwright.jobs.exports import from_scenario
from simulator.levers import LEVERS
from simulator.scenario import make_scenario
from tests.laws.questions import Choose, Question

JOBS = {
    "dense": {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 64},
    "experts": {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 64},
    "latent": {"model": "deepseek-v2-lite", "cluster": "dgx-h200", "gpus": 64},
}
TOLD: dict[str, dict] = {
    "megatron-lm": {
        "jobs": ["dense", "experts", "latent"],
        "overlap_tensor": ["backward", "full"],
        "context_algorithm": ["ring", "all_gather", "ulysses"],
    },
    "megatron-bridge": {
        "jobs": ["dense", "latent"],
        "gradient_bytes": 4,
        "overlap_tensor": ["backward", "full"],
        "context_algorithm": ["ring", "all_gather", "ulysses"],
    },
    "deepspeed": {
        "jobs": ["dense"],
        "virtual_pipeline": [1],
        "first": None,
        "recompute": ["none", "full"],
        "overlap_tensor": ["none", "full"],
        "context_algorithm": ["ulysses"],
        "sequence_parallel": [False],
        "rank_order": ["tensor-context-data-pipeline"],
        "precision": ["bf16", "fp16", "fp32"],
    },
    "torchtitan": {
        "jobs": ["dense", "latent"],
        "zero": [0, 2, 3],
        "overlap_tensor": ["none", "full"],
        "context_algorithm": ["all_gather"],
        "overlap_gradients": [True],
        "overlap_parameters": [True],
        "overlap_pipeline": [True],
        "overlap_expert": [False],
        "rank_order": ["tensor-context-data-pipeline"],
        "precision": ["bf16", "fp8", "mxfp8"],
    },
}
"""What each target can express; a plan outside of it has a gap with a name."""


FRAMEWORKS = {
    "megatron-lm": "megatron-core",
    "megatron-bridge": "megatron-bridge",
    "deepspeed": "deepspeed-zero3",
    "torchtitan": "torchtitan",
}


def levers(choose: Choose, experts: bool, recompute: str, bytes_: int) -> Question:
    """Levers that Megatron's launchers have options for."""
    chosen = {"graphs": choose([None, "none", "attention", "step"])}
    chosen["cross_entropy"] = choose([None, "eager", "native"])
    chosen["scaling"] = choose([None, "delayed", "current"])
    chosen["states"] = choose([None, "mixed", "moments-16"])
    chosen["gradient_bytes"] = chosen["reduce_bytes"] = choose([None, bytes_])
    if recompute == "selective":
        modules = ["layernorm", "mlp", "core_attn"] + ["moe_act", "mla_up_proj"] * experts
        subsets = chain.from_iterable(combinations(modules, size) for size in range(len(modules) + 1))
        names = list(choose(list(subsets)))
        chosen["recompute_modules"] = names if names not in ([], ["core_attn"]) else None
    if experts:
        chosen["graphs"] = choose([None, "none", "router", "attention", "step"])
        chosen["fused_router"] = choose([None, False, True])
        chosen["dispatcher"] = choose([None, "all-to-all", "flex"])
        chosen["grouped_launches"] = choose([None, "fused-mlp"])
        chosen["dispatcher_library"] = choose([None, "hybridep", "deepep"])
    return {name: value for name, value in chosen.items() if value is not None}


def scenario_for(choose: Choose, target: str) -> Question:
    """A scenario whose plan the target can express."""
    told = TOLD[target]
    job = JOBS[choose(told["jobs"])]
    plan = {
        "tensor": choose([1, 2, 4]),
        "pipeline": choose(told.get("pipeline", [1, 2, 4])),
        "context": choose(told.get("context", [1, 2])),
        "micro_batch": choose([1, 2]),
        "recompute": choose(told.get("recompute", ["none", "selective", "full"])),
        "zero": choose(told.get("zero", [0, 1, 2, 3])),
        "overlap_gradients": choose(told.get("overlap_gradients", [True, False])),
        "overlap_parameters": choose(told.get("overlap_parameters", [True, False])),
        "context_algorithm": choose(told["context_algorithm"]),
        "overlap_tensor": choose(told["overlap_tensor"]),
        "rank_order": choose(
            told.get("rank_order", ["tensor-context-data-pipeline", "tensor-context-pipeline-data"])
        ),
    }
    plan["data"] = job["gpus"] // (plan["tensor"] * plan["pipeline"] * plan["context"])
    plan["sequence_parallel"] = plan["tensor"] > 1 and choose(told.get("sequence_parallel", [True, False]))
    if plan["pipeline"] > 1:
        plan["virtual_pipeline"] = choose(told.get("virtual_pipeline", [1, 2]))
        if plan["virtual_pipeline"] > 1:
            plan["schedule"] = "interleaved"
            plan["overlap_pipeline"] = choose(told.get("overlap_pipeline", [True, False]))
        if plan["pipeline"] > 2 and choose((False, True)) and "first" not in told:
            plan["first_stage_layers"], plan["last_stage_layers"] = choose([(6, 6), (4, 10), (-1, 0)])
    if job["model"] != "llama3.1-8b":
        plan["expert"] = choose(told.get("expert", [1, 2, 4, 8]))
        plan["overlap_expert"] = plan["expert"] > 1 and choose(told.get("overlap_expert", [True, False]))
    if target.startswith("megatron"):
        plan |= levers(
            choose, job["model"] != "llama3.1-8b", plan["recompute"], told.get("gradient_bytes", 2)
        )
    ranks = plan["data"] * plan["context"]
    if plan["zero"] and ranks > 1 and "shard_group" not in told and choose((False, True)):
        plan["shard_group"] = ranks // 2
    workload = {
        "seq_len": 4096,
        "global_batch": 512,
        "precision": choose(told.get("precision", ["bf16", "fp8"])),
    }
    scenario = {**job, "workload": workload, "plan": plan}
    if target in FRAMEWORKS:
        scenario["framework"] = FRAMEWORKS[target]
    if target == "deepspeed" and plan["pipeline"] > 1:
        scenario["framework"] = "megatron-deepspeed"
    elif target == "deepspeed" and plan["zero"] < 3:
        scenario["framework"] = "deepspeed-zero1"
    return scenario


IN_CODE = "checkpointing", "PipelineModule"
"""Words of gaps that a training script closes by what the files say."""


def returned(target: str, scenario: dict, folder: Path) -> tuple[dict, dict]:
    """The plan that went out and the one that came back, without fields that have no effect.

    Raises:
        InputError: the scenario is none.
        InfeasibleError: the export says what it cannot say.
    """
    make_scenario(scenario, "random", Path())
    question = from_scenario(scenario, "random", Path(), "test")
    made = export(question, target)
    if any(gap.startswith("plan.") and not any(word in gap for word in IN_CODE) for gap in made.gaps):
        raise InfeasibleError(f"{target} cannot say it: {made.gaps}")
    for name, text in made.files.items():
        (folder / name).write_text(text)
    asked = {"cluster": scenario["cluster"], "gpus": scenario["gpus"]}
    if target == "deepspeed":  # its configuration has no model and no data
        asked |= {"model": scenario["model"], "seq_len": scenario["workload"]["seq_len"]}
    back = read_launch(str(folder / next(iter(made.files))), stated=asked)
    assert not back.unknown
    again = make_scenario(back.scenario, "back", Path())
    assert again.plan is not None and question.plan is not None and question.scenario is not None
    assert again.setting.training == question.scenario.setting.training.model_copy(
        update={"dropout": again.setting.training.dropout}
    )
    assert again.setting.model == question.scenario.setting.model
    setting = question.scenario.setting
    usual = chosen_levers(setting, question.plan)
    # A lever at the release's default and one that is left to the release are the same.
    without = moot(setting, question.plan) | {
        name for name, value in usual.items() if getattr(question.plan, name) == value
    }
    assert all(getattr(again.plan, name, None) is None for name in without & {*LEVERS})
    return question.plan.model_dump(exclude=without), again.plan.model_dump(exclude=without)
