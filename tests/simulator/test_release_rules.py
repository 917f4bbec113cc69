"""What a release can run: each rule refuses at every door, exceptions are stated, and users may insist."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from core.loading import build
from evidence.regression.doors import doors
from hwmodels.cluster import clusters
from simulator.frameworks import Framework, frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.rules import RELEASE_RULES, binding, breaks
from simulator.scenario import make_scenario
from simulator.setting import Setting
from simulator.workload import Training

PAGE = Path(__file__).parents[2] / "docs" / "search.md"
QUESTION = {"model": "mixtral-8x7b", "cluster": "dgx-h200", "gpus": 64, "seq_len": 4096, "global_batch": 512}
DEGREES = {
    "tensor": 1,
    "pipeline": 1,
    "virtual_pipeline": 1,
    "context": 1,
    "expert": 8,
    "zero": 1,
    "recompute": "none",
}
BROKEN = {
    "fused_mlp": {"grouped_launches": "fused-mlp"},
    "step_graphs": {"graphs": "step"},
    "overlap_recompute": {"overlap_expert": True, "recompute": "full"},
    "graphs_recompute": {"graphs": "attention", "recompute": "full"},
    "overlap_partner": {"overlap_expert": True, "pipeline": 2},
    "offers": {"grouped_launches": "one"},
}


def asked(framework="megatron-core", cluster="dgx-h100", precision="bf16", **plan):
    """A setting and a plan of it."""
    training = Training.model_validate({"seq_len": 4096, "global_batch": 512, "precision": precision})
    used = frameworks.get(framework) if isinstance(framework, str) else framework
    setting = Setting(models.get("mixtral-8x7b"), clusters.get(cluster).resized(64), training, used)
    return setting, Plan.model_validate({**DEGREES, "data": 64, **plan})


@pytest.mark.parametrize("rule", BROKEN)
def test_every_door_refuses_with_the_rule(rule):
    plan = {**DEGREES, **BROKEN[rule]}
    scenario = {
        **{name: QUESTION[name] for name in ("model", "cluster", "gpus")},
        "workload": {"seq_len": 4096, "global_batch": 512},
        "framework": "megatron-core",
        "plan": plan,
    }
    ask = {**QUESTION, "framework": "megatron-core"}
    asks = {
        "simulate": lambda: mw.simulate(**ask, plan=plan),
        "whatif": lambda: mw.whatif(
            **ask, plan=plan, variations={"nic": [{"cluster.network.nic_gbps": 800}]}
        ),
        "plan": lambda: mw.plan(**ask, fix=plan),
        "export": lambda: mw.export(scenario, "megatron-lm"),
    }
    for question in asks.values():
        with pytest.raises(InputError, match=rf"--allow {rule}|\({rule}\)"):
            question()
    insists = {
        "simulate": mw.simulate(**ask, plan=plan, allow=[rule]).report.details,
        "plan": mw.plan(**ask, fix=plan, allow=[rule], top=1).best.details,
    }
    for door, report in insists.items():
        assert set(report["insisted"]) == {rule}, door
    assert f"AGAINST {rule}" in "".join(mw.export(scenario, "megatron-lm", allow=[rule]).files.values())


def test_an_imported_launch_breaks_no_rule_unless_its_user_insists():
    launch = (
        "torchrun --nnodes 8 --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu "
        "--ffn-hidden-size 14336 --seq-length 4096 --normalization RMSNorm --num-experts 8 "
        "--moe-router-topk 2 "
        "--expert-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 512 --bf16 "
        "--use-distributed-optimizer --recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1 --overlap-moe-expert-parallel-comm"
    )
    given = {"cluster": "dgx-h100", "model": "mixtral-8x7b"}
    with pytest.raises(InputError, match="--allow overlap_recompute"):
        mw.import_(launch, **given)
    insisted = mw.import_(launch, **given, allow=["overlap_recompute"])
    assert insisted.scenario["allow"] == ["overlap_recompute"]
    assert any("overlap_recompute" in note for note in insisted.notes)
    assert mw.simulate(insisted.scenario).report.details["insisted"]


def test_a_variation_that_breaks_a_rule_is_named_as_the_cause():
    plan = {**DEGREES, "recompute": "full"}
    answer = mw.whatif(
        **QUESTION,
        framework="megatron-core",
        plan=plan,
        variations={"beside": [{"plan.overlap_expert": True}]},
    )
    assert "--allow overlap_recompute" in answer.to_dict()["variations"][0]["problem"]


def test_what_a_release_lifts_does_not_bind_it_nor_its_forks():
    assert not breaks(*asked("primus", "mi355x-8", dispatcher="flex"))
    assert "flex" in breaks(*asked("megatron-core", "mi355x-8", dispatcher="flex"))
    deepep = {"dispatcher": "flex", "dispatcher_library": "deepep"}
    assert "deepep_rack" in breaks(*asked("megatron-bridge", "gb200-nvl72", **deepep))
    fork = build(Framework, {"name": "ours", "title": "ours", "based_on": "megatron-core", "source": {}}, "")
    assert not breaks(*asked(fork, "gb200-nvl72", **deepep))
    assert "overlap_recompute" in breaks(*asked(fork, overlap_expert=True, recompute="full"))
    assert not breaks(*asked("torch-fsdp", overlap_expert=True, recompute="full", zero=3))


def test_default_graphs_give_way_to_recomputation_and_stated_ones_do_not():
    data = {
        "model": "mixtral-8x7b",
        "cluster": "gb200-nvl72",
        "gpus": 64,
        "workload": {"seq_len": 4096, "global_batch": 512},
        "framework": "megatron-bridge",
    }
    plan = make_scenario({**data, "plan": {**DEGREES, "recompute": "full"}}, "", Path()).plan
    assert plan.graphs == "none"
    assert make_scenario({**data, "plan": DEGREES}, "", Path()).plan.graphs is None
    with pytest.raises(InputError, match="graphs=attention, recompute=full does not run"):
        make_scenario({**data, "plan": {**DEGREES, "recompute": "full", "graphs": "slow-hosts"}}, "", Path())


@pytest.mark.parametrize(
    ("framework", "name", "words"),
    [
        ("megatron-core", "fused_mpl", "unknown rule 'fused_mpl'; did you mean 'fused_mlp'?"),
        ("torch-fsdp", "flex", "flex binds no plan of torch-fsdp; rules that do: fused_mlp"),
        ("primus", "flex", "flex binds no plan of primus"),
    ],
)
def test_a_rule_that_binds_nobody_cannot_be_set_aside(framework, name, words):
    with pytest.raises(InputError) as refused:
        mw.simulate(**QUESTION, framework=framework, plan=DEGREES, allow=[name])
    assert words in str(refused.value)


def test_a_release_that_lifts_an_unknown_rule_is_told_the_nearest():
    fork = {"name": "ours", "title": "ours", "based_on": "megatron-core", "source": {}, "lifts": {"flx": "?"}}
    setting, _ = asked(build(Framework, fork, ""))
    with pytest.raises(InputError, match="framework ours: lifts: unknown rule 'flx'; did you mean 'flex'"):
        binding(setting)


def test_plans_of_one_call_are_judged_as_each_alone():
    setting, plan = asked()
    plans = [plan.model_copy(update=changes) for changes in BROKEN.values()]
    together = Plans.of(plans)
    for rule in RELEASE_RULES:
        alone = [bool(rule.holds(setting, Plans.of(each))[0]) for each in plans]
        assert rule.holds(setting, together).tolist() == alone, rule.name


@pytest.mark.parametrize("framework", ["megatron-core", "megatron-bridge", "primus", "torchtitan"])
def test_doors_agree_on_random_plans(framework):
    listed = list(doors(framework, 12))
    assert len(listed) > 6
    assert all(door.agree for door in listed), [door for door in listed if not door.agree][:1]
    assert any(door.refused["scenario"] for door in listed)


def test_the_page_of_the_search_lists_every_rule():
    page = PAGE.read_text(encoding="utf-8")
    for rule in RELEASE_RULES:
        assert f"| `{rule.name}` |" in page
