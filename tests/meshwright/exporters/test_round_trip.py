"""A plan that goes out to a launcher's files and comes back is the same plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.errors import InputError
from meshwright.exporters import export
from meshwright.exporters.facts import chosen_levers, moot
from meshwright.exporters.imports import read_launch
from meshwright.jobs.exports import from_scenario
from simulator.levers import LEVERS
from simulator.scenario import make_scenario

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


@st.composite
def levers(draw, experts: bool, recompute: str, bytes_: int):
    """Levers that Megatron's launchers have options for."""
    chosen = {"graphs": draw(st.sampled_from([None, "none", "attention", "step"]))}
    chosen["cross_entropy"] = draw(st.sampled_from([None, "eager", "native"]))
    chosen["scaling"] = draw(st.sampled_from([None, "delayed", "current"]))
    chosen["states"] = draw(st.sampled_from([None, "mixed", "moments-16"]))
    chosen["gradient_bytes"] = chosen["reduce_bytes"] = draw(st.sampled_from([None, bytes_]))
    if recompute == "selective":
        modules = ["layernorm", "mlp", "core_attn"] + ["moe_act", "mla_up_proj"] * experts
        names = draw(st.lists(st.sampled_from(modules), unique=True))
        chosen["recompute_modules"] = names if names not in ([], ["core_attn"]) else None
    if experts:
        chosen["graphs"] = draw(st.sampled_from([None, "none", "router", "attention", "step"]))
        chosen["fused_router"] = draw(st.sampled_from([None, False, True]))
        chosen["dispatcher"] = draw(st.sampled_from([None, "all-to-all", "flex"]))
        chosen["grouped_launches"] = draw(st.sampled_from([None, "fused-mlp"]))
        chosen["dispatcher_library"] = draw(st.sampled_from([None, "hybridep", "deepep"]))
    return {name: value for name, value in chosen.items() if value is not None}


@st.composite
def questions(draw, target: str):
    """Scenarios whose plan the target can express."""
    told = TOLD[target]
    job = JOBS[draw(st.sampled_from(told["jobs"]))]
    plan = {
        "tensor": draw(st.sampled_from([1, 2, 4])),
        "pipeline": draw(st.sampled_from(told.get("pipeline", [1, 2, 4]))),
        "context": draw(st.sampled_from(told.get("context", [1, 2]))),
        "micro_batch": draw(st.sampled_from([1, 2])),
        "recompute": draw(st.sampled_from(told.get("recompute", ["none", "selective", "full"]))),
        "zero": draw(st.sampled_from(told.get("zero", [0, 1, 2, 3]))),
        "overlap_gradients": draw(st.sampled_from(told.get("overlap_gradients", [True, False]))),
        "overlap_parameters": draw(st.sampled_from(told.get("overlap_parameters", [True, False]))),
        "context_algorithm": draw(st.sampled_from(told["context_algorithm"])),
        "overlap_tensor": draw(st.sampled_from(told["overlap_tensor"])),
        "rank_order": draw(
            st.sampled_from(
                told.get("rank_order", ["tensor-context-data-pipeline", "tensor-context-pipeline-data"])
            )
        ),
    }
    plan["data"] = job["gpus"] // (plan["tensor"] * plan["pipeline"] * plan["context"])
    plan["sequence_parallel"] = plan["tensor"] > 1 and draw(
        st.sampled_from(told.get("sequence_parallel", [True, False]))
    )
    if plan["pipeline"] > 1:
        plan["virtual_pipeline"] = draw(st.sampled_from(told.get("virtual_pipeline", [1, 2])))
        if plan["virtual_pipeline"] > 1:
            plan["schedule"] = "interleaved"
            plan["overlap_pipeline"] = draw(st.sampled_from(told.get("overlap_pipeline", [True, False])))
        if plan["pipeline"] > 2 and draw(st.booleans()) and "first" not in told:
            plan["first_stage_layers"], plan["last_stage_layers"] = draw(
                st.sampled_from([(6, 6), (4, 10), (-1, 0)])
            )
    if job["model"] != "llama3.1-8b":
        plan["expert"] = draw(st.sampled_from(told.get("expert", [1, 2, 4, 8])))
        plan["overlap_expert"] = plan["expert"] > 1 and draw(
            st.sampled_from(told.get("overlap_expert", [True, False]))
        )
    if target.startswith("megatron"):
        plan |= draw(levers(job["model"] != "llama3.1-8b", plan["recompute"], told.get("gradient_bytes", 2)))
    ranks = plan["data"] * plan["context"]
    if plan["zero"] and ranks > 1 and "shard_group" not in told and draw(st.booleans()):
        plan["shard_group"] = ranks // 2
    workload = {
        "seq_len": 4096,
        "global_batch": 512,
        "precision": draw(st.sampled_from(told.get("precision", ["bf16", "fp8"]))),
    }
    scenario = {**job, "workload": workload, "plan": plan}
    if target in FRAMEWORKS:
        scenario["framework"] = FRAMEWORKS[target]
    if target == "deepspeed" and plan["pipeline"] > 1:
        scenario["framework"] = "megatron-deepspeed"
    elif target == "deepspeed" and plan["zero"] < 3:
        scenario["framework"] = "deepspeed-zero1"
    try:
        make_scenario(scenario, "random", Path())
    except InputError:
        assume(False)
    return scenario


IN_CODE = "checkpointing", "PipelineModule"
"""Words of gaps that a training script closes by what the files say."""


def returned(target: str, scenario: dict, folder: Path) -> tuple[dict, dict]:
    """The plan that went out and the one that came back, without fields that have no effect."""
    question = from_scenario(scenario, "random", Path(), "test")
    made = export(question, target)
    if any(gap.startswith("plan.") and not any(word in gap for word in IN_CODE) for gap in made.gaps):
        assume(False)
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


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(TOLD))
def test_plans_return_as_they_left(target, tmp_path_factory):
    folder, seen = tmp_path_factory.mktemp(target), set()

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(scenario=questions(target))
    def check(scenario):
        left, came = returned(target, scenario, folder)
        assert came == left
        seen.add(str(scenario))

    check()
    assert len(seen) >= 160  # different plans, not one again and again


@pytest.mark.parametrize("target", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize(
    ("pipeline", "chunks", "ends"), [(2, 3, (40, 40)), (4, 7, (19, 19)), (2, 1, (42, 38))]
)
def test_chunks_that_do_not_divide_the_layers_return_as_they_left(target, pipeline, chunks, ends, tmp_path):
    plan = {
        "tensor": 4,
        "sequence_parallel": True,
        "pipeline": pipeline,
        "virtual_pipeline": chunks,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
        "data": 16 // pipeline,
        "first_stage_layers": ends[0],
        "last_stage_layers": ends[1],
    }
    workload = {"seq_len": 4096, "global_batch": 512, "precision": "bf16"}
    job = {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 64, "framework": FRAMEWORKS[target]}
    left, came = returned(target, {**job, "workload": workload, "plan": plan}, tmp_path)
    assert came == left
