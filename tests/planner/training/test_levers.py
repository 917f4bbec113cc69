"""The levers that a search chooses, against every combination predicted one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from planner.training import nearest
from planner.training.bounds import ShapeBounds
from planner.training.candidates import Enumeration
from planner.training.constraints import Constraints
from planner.training.lever_space import LeverSpace, may_overlap, settled
from planner.training.measured_runs import proven
from planner.training.mechanisms import mechanisms
from planner.training.rules import RULES
from planner.training.search import search
from planner.training.space import Space
from simulator.frameworks import frameworks
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.models import Model, models
from simulator.plan import Plan, Plans, concatenate
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory
from simulator.workload import Training

MODELS = {
    "latent": {
        "mla": {
            "q_lora_rank": 512,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
        "moe": {
            "experts": 64,
            "top_k": 6,
            "feed_forward": 1408,
            "shared_experts": 2,
            "shared_feed_forward": 1408,
            "first_dense_layers": 2,
        },
    },
    "grouped": {"kv_heads": 4, "moe": {"experts": 64, "top_k": 8, "feed_forward": 768}},
    "dense": {"kv_heads": 8},
}
FEW = Constraints.parse(
    fix=["tensor=1", "context=1", "zero=1", "shard_group=0", "expert_tensor=1", "micro_batch=2"],
    limit=["pipeline=2", "virtual_pipeline=3"],
)


@pytest.fixture(scope="module")
def ask():
    """Build a setting whose release offers levers."""

    def build(kind: str, cluster: str = "gb200-nvl72", precision: str = "mxfp8") -> Setting:
        model = Model.model_validate(
            {
                "name": kind,
                "layers": 12,
                "hidden": 2048,
                "heads": 16,
                "feed_forward": 8192,
                "vocabulary": 32000,
                "activation": "swiglu",
                "norm": "rmsnorm",
                "position": "rope",
                **MODELS[kind],
            }
        )
        training = Training.model_validate({"seq_len": 4096, "global_batch": 64, "precision": precision})
        return Setting(model, clusters.get(cluster), training, frameworks.get("megatron-bridge"))

    return build


def structures(space: Space) -> list[Plan]:
    """Candidates without their levers that rules about shapes keep."""
    blocks = [block.plans for block in Enumeration(space, RULES[:-1]).blocks()]
    return [plan for plans in blocks for plan in plans]


def by_hand(space: Space) -> dict[tuple[object, ...], float]:
    """The least step time that fits of each structure and kind of recomputation, plan by plan."""
    levers, setting = space.levers, space.setting
    assert levers is not None
    allowed = []
    for kind in levers.recompute:
        sets = levers.modules if kind == "selective" else (None if kind == "full" else (),)
        for chosen, modules in product(levers.combinations, sets):
            if levers.allows(chosen, modules):
                fields = {"recompute": kind, "recompute_modules": modules or None, **chosen.fields}
                allowed.append((chosen.overlaps, fields))
    listed = []
    for plan in structures(space):
        overlaps = bool(may_overlap(setting, Plans.of(plan))[0])
        listed += [plan.model_copy(update=fields) for beside, fields in allowed if overlaps or not beside]
    keeps = space.constraints.keeps
    if keeps is not None:
        listed = [plan for plan in listed if keeps.together(mechanisms(setting, plan))]
    plans = Plans.of(listed)
    times = predict(setting, plans).time
    stages = Stages.of(setting, plans)
    peak = memory(setting, plans, stages, parameters(setting, plans, stages)).peak
    best: dict[tuple[object, ...], float] = {}
    for plan, time, held in zip(listed, times, peak, strict=True):
        if held <= space.usable_bytes:
            key = structure(plan)
            best[key] = min(best.get(key, np.inf), float(time))
    return best


def structure(plan: Plan) -> tuple[object, ...]:
    """What a structure and its kind of recomputation are known by."""
    return plan.describe(), plan.schedule, plan.micro_batch, plan.zero, plan.recompute


@pytest.mark.parametrize(
    ("kind", "cluster", "precision", "headroom"),
    [("grouped", "dgx-b200", "mxfp8", 0.875), ("grouped", "dgx-h100", "bf16", 0.6)],
)
def test_proven_structures_get_the_fastest_levers_that_were_measured_with_them(
    ask, kind, cluster, precision, headroom
):
    setting = ask(kind, cluster, precision)
    everything = search(setting, 8, FEW, top=10_000, headroom=headroom)
    kept = proven(setting, FEW)
    wanted = by_hand(Space.of(setting, 8, kept, headroom))
    found = search(setting, 8, kept, top=10_000, headroom=headroom)
    assert {structure(plan) for plan in found.plans} == wanted.keys()
    for plan, time in zip(found.plans, found.step.time, strict=True):
        assert time == pytest.approx(wanted[structure(plan)], rel=1e-6)
    assert 0 < found.scored < everything.scored
    assert found.scored + sum(found.removed.values()) == found.candidates


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cluster", "precision", "headroom", "load"),
    [
        ("latent", "gb200-nvl72", "mxfp8", 0.82, 1.0),
        ("latent", "dgx-h100", "bf16", 0.55, 1.0),
        ("grouped", "dgx-b200", "mxfp8", 0.89, 1.0),  # 16 combinations do not fit that are the fastest
        ("grouped", "dgx-h100", "fp8", 0.72, 1.0),
        ("grouped", "dgx-h100", "bf16", 0.65, 2.5),
        ("dense", "gb200-nvl72", "mxfp8", 0.938, 1.0),
    ],
)
def test_every_structure_gets_its_fastest_levers_that_fit(ask, kind, cluster, precision, headroom, load):
    setting = ask(kind, cluster, precision)
    if load > 1:
        training = setting.training.model_copy(update={"expert_load": load})
        setting = replace(setting, training=training)
    space = Space.of(setting, 8, FEW, headroom)
    wanted = by_hand(space)
    found = search(setting, 8, FEW, top=10_000, headroom=headroom)
    assert {structure(plan) for plan in found.plans} == wanted.keys()
    assert found.scored == len(wanted) and found.removed["memory"] > 0
    for plan, time in zip(found.plans, found.step.time, strict=True):
        assert time == pytest.approx(wanted[structure(plan)], rel=1e-6)
    assert found.memory.peak.max() <= space.usable_bytes
    assert found.scored + sum(found.removed.values()) == found.candidates
    # Some structures fit only because they recompute more than the cheapest module.
    assert (
        kind != "latent"
        or len({plan.recompute_modules for plan in found.plans if plan.recompute == "selective"}) > 1
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "cluster"), [("latent", "dgx-b200"), ("grouped", "gb200-nvl72")])
def test_a_short_list_is_the_head_of_the_whole_ranking(ask, kind, cluster):
    setting, limit = ask(kind, cluster), Constraints.parse(limit=["tensor=2", "virtual_pipeline=3"])
    few, many = (search(setting, 8, limit, top=top, headroom=0.8) for top in (5, 3000))
    assert list(few.plans) == list(many.plans)[:5]
    assert few.scored == many.scored
    kept = []
    search(setting, 8, limit, top=5, headroom=0.8, keep=lambda plans, values: kept.append(len(plans)))
    assert sum(kept) == few.scored


def test_fixed_levers_are_kept(ask):
    setting = ask("grouped")
    fixed = {"dispatcher": "all-to-all", "graphs": "none", "recompute_modules": "moe_act"}
    found = search(setting, 8, Constraints.of(fixed), top=20)
    assert {plan.dispatcher for plan in found.plans} == {"all-to-all"}
    assert {plan.graphs for plan in found.plans} == {"none"}
    assert {plan.recompute_modules for plan in found.plans} <= {("moe_act",), None}


def test_free_levers_are_never_slower_than_fixed_ones(ask):
    setting = ask("grouped")
    free = search(setting, 8, top=1).step.time[0]
    for name, value in (("dispatcher", "flex"), ("graphs", "none"), ("overlap_expert", "false")):
        assert free <= search(setting, 8, Constraints.of({name: value}), top=1).step.time[0] * (1 + 1e-6)


@pytest.mark.parametrize(("kind", "cluster"), [("grouped", "dgx-h100"), ("latent", "gb200-nvl72")])
def test_plans_keep_the_rules_between_levers(ask, kind, cluster):
    setting = ask(kind, cluster, "fp8" if cluster == "dgx-h100" else "mxfp8")
    for plan in search(setting, 8, top=300).plans:
        if plan.graphs == "step":
            assert (plan.dispatcher, plan.grouped_launches) == ("flex", "fused-mlp")
        if plan.grouped_launches == "fused-mlp":
            assert cluster != "dgx-h100"
        if plan.overlap_expert:
            assert plan.recompute != "full" and "moe" not in (plan.recompute_modules or ())
            assert plan.pipeline == 1 or plan.schedule == "interleaved"


def test_models_have_only_their_modules(ask):
    sets = {kind: LeverSpace.of(ask(kind), Constraints()).modules for kind in MODELS}
    assert {name for modules in sets["dense"] for name in modules} == {"core_attn", "layernorm", "mlp"}
    assert "mla_up_proj" not in {name for modules in sets["grouped"] for name in modules}
    assert not any({"moe", "moe_act"} <= set(modules) for modules in sets["latent"])


def test_releases_without_offers_choose_none():
    setting = Setting(
        Model.model_validate(
            {
                "name": "small",
                "layers": 4,
                "hidden": 1024,
                "heads": 8,
                "feed_forward": 4096,
                "vocabulary": 32000,
            }
        ),
        clusters.get("dgx-h100"),
        Training.model_validate({"seq_len": 2048, "global_batch": 16}),
        frameworks.get("deepspeed-zero3"),
    )
    found = search(setting, 8, top=3)
    assert {(plan.graphs, plan.dispatcher, plan.recompute_modules) for plan in found.plans} == {(None,) * 3}
    assert "levers" not in found.removed


def test_a_release_searches_only_what_it_offers():
    setting = Setting(
        models.get("llama3.1-8b"),
        clusters.get("dgx-h100"),
        Training.model_validate({"seq_len": 8192, "global_batch": 64}),
        frameworks.get("deepspeed-zero3"),
    )
    plans = list(search(setting, 16, top=100).plans)
    assert {(plan.zero, plan.tensor, plan.pipeline, plan.sequence_parallel) for plan in plans} == {
        (3, 1, 1, False)
    }
    assert {plan.context_algorithm for plan in plans if plan.context > 1} <= {"ulysses"}
    with pytest.raises(InputError, match="deepspeed-zero3 offers tensor 1, found 2"):
        search(setting, 16, Constraints.parse(["tensor=2"]))


@pytest.mark.parametrize(
    ("framework", "cluster", "fix", "flex"),
    [
        ("megatron-core", "dgx-h100", {}, True),
        ("megatron-core", "mi300x-8", {}, False),
        ("nemo", "dgx-h100", {}, False),  # its experts pad to a capacity
        ("nemo", "dgx-h100", {"fixed_capacity": False}, True),
        ("nemo", "gb200-nvl72", {"fixed_capacity": False}, False),
    ],
)
def test_the_flex_dispatcher_is_tried_where_it_runs(framework, cluster, fix, flex):
    training = Training.model_validate({"seq_len": 4096, "global_batch": 64})
    setting = Setting(models.get("mixtral-8x7b"), clusters.get(cluster), training, frameworks.get(framework))
    levers = LeverSpace.of(setting, Constraints.of(fix))
    assert ("flex" in {chosen.fields["dispatcher"] for chosen in levers.combinations}) == flex


def test_a_release_that_brings_its_dispatcher_tries_it_on_any_device():
    training = Training.model_validate({"seq_len": 4096, "global_batch": 64})
    setting = Setting(
        models.get("mixtral-8x7b"), clusters.get("mi300x-8"), training, frameworks.get("primus")
    )
    tried = LeverSpace.of(setting, Constraints()).combinations
    assert setting.choices.dispatcher == "flex"
    assert {chosen.fields["dispatcher"] for chosen in tried} == {None, "all-to-all"}


def test_fixed_levers_that_cannot_run_are_refused_with_the_rule(ask):
    with pytest.raises(InputError, match=r"grouped_launches=fused-mlp does not run .* MXFP8 on Blackwell"):
        search(ask("grouped", "dgx-h100", "bf16"), 8, Constraints.of({"grouped_launches": "fused-mlp"}))


def test_zero_below_3_of_deepspeed_has_no_pipeline():
    training = Training.model_validate({"seq_len": 8192, "global_batch": 64})
    zero1 = frameworks.get("deepspeed-zero1")
    setting = Setting(models.get("llama3.1-8b"), clusters.get("dgx-h100"), training, zero1)
    plans = list(search(setting, 16, top=100).plans)
    assert {plan.zero for plan in plans} <= {0, 1, 2} and max(plan.tensor for plan in plans) > 1
    assert {(plan.pipeline, plan.sequence_parallel, plan.shard_group) for plan in plans} == {(1, False, 0)}


def test_lacking_modules_are_refused_by_name(ask):
    with pytest.raises(InputError, match="offers recompute_modules core_attn, mla_up_proj"):
        search(ask("dense"), 8, Constraints.of({"recompute_modules": "layernorm+mlp_act"}))


def test_modules_that_the_model_lacks_are_refused(ask):
    with pytest.raises(InputError, match="dense has no moe_act; it has core_attn, layernorm, mlp"):
        search(ask("dense"), 8, Constraints.of({"recompute_modules": "moe_act"}))


def test_a_loss_kernel_that_is_never_worse_is_taken(ask):
    core = replace(ask("dense", "dgx-h100", "bf16"), framework=frameworks.get("megatron-core"))
    # A value that is larger, but faster, is nobody's default: native holds 4 bytes a logit more than eager.
    assert not settled(core, FEW)
    offering = core.framework.model_copy(
        update={"offers": {**core.framework.offers, "cross_entropy": ["eager", "fused"]}}
    )
    setting = replace(core, framework=offering)
    assert settled(setting, FEW) == {"cross_entropy": "fused"}
    assert not settled(setting, Constraints.of({"cross_entropy": "eager"}))
    best = search(setting, 8, FEW, top=20, headroom=0.5).plans
    assert {plan.cross_entropy for plan in best} == {"fused"}
    plain = Plans.of([plan.model_copy(update={"cross_entropy": None}) for plan in best])
    step, usual = predict(setting, best), predict(setting, plain)
    assert (step.time < usual.time).all()
    peaks = [
        memory(setting, plans, each.stages, each.parameters).peak
        for plans, each in ((best, step), (plain, usual))
    ]
    assert (peaks[0] <= peaks[1]).all()


def test_torchtitan_tries_asynchronous_tensor_parallelism(ask):
    setting = replace(ask("dense", "dgx-h100", "bf16"), framework=frameworks.get("torchtitan"))
    both = Constraints.parse(fix=["context=1", "micro_batch=2"], limit=["pipeline=2"])
    found = search(setting, 8, both, top=10_000)
    overlaps = {(plan.tensor > 1, plan.overlap_tensor) for plan in found.plans}
    assert overlaps == {(False, "none"), (True, "none"), (True, "full")}
    assert found.scored + sum(found.removed.values()) == found.candidates
    apart: dict[str, float] = {}
    for value in ("none", "full"):
        held = search(setting, 8, both.overridden(Constraints.of({"overlap_tensor": value})), top=10_000)
        apart |= {
            plan.model_dump_json(): time
            for plan, time in zip(held.plans, held.step.time, strict=True)
            if plan.tensor > 1 or value == "none"
        }
    together = zip(found.plans, found.step.time, strict=True)
    assert {plan.model_dump_json(): time for plan, time in together} == pytest.approx(apart)
    with pytest.raises(InputError, match="torchtitan offers overlap_tensor none, full"):
        search(setting, 8, both.overridden(Constraints.of({"overlap_tensor": "backward"})))
    with pytest.raises(InputError, match="torchtitan offers dispatcher all-to-all, found flex"):
        search(setting, 8, Constraints.of({"dispatcher": "flex"}))


LISTS = {
    ("latent", 64): (8, 256),
    ("grouped", 16): (8, 256),
    ("latent", 32): (3, 2048),
    ("dense", 64): (1, 2048),
}
"""Rows of a short list, and plans that it is picked from."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "devices"), list(LISTS))
def test_bounds_lose_no_plan_that_is_shown_or_weighed(ask, monkeypatch, kind, devices):
    """A search leaves out shapes by bounds: its list, and its one plan, are those of a whole search."""
    setting, (top, pool) = ask(kind), LISTS[kind, devices]
    monkeypatch.setattr("planner.training.search.POOL", pool)
    whole = search(setting, devices, top=top, alternatives=True, keep=lambda *_: None)
    monkeypatch.setattr(nearest, "FIRST", 32)
    listed = search(setting, devices, top=top, alternatives=True)
    found = search(setting, devices, recommended=True)
    assert list(listed.plans) == list(whole.plans)
    assert [(row.families, row.also) for row in listed.rows] == [
        (row.families, row.also) for row in whole.rows
    ]
    assert list(found.plans) == list(whole.plans)[:1]
    assert listed.step.time.tolist() == whole.step.time.tolist()
    assert found.scored <= listed.scored < whole.scored
    for each in (listed, found):
        assert each.removed[nearest.SLOWER] > 0
        assert each.scored + sum(each.removed.values()) == each.candidates == whole.candidates


@pytest.mark.parametrize(
    ("kind", "devices", "cluster", "headroom"),
    [("grouped", 16, "dgx-h100", 0.85), ("dense", 8, "dgx-a100-40gb", 0.7)],
)
def test_no_step_is_shorter_than_its_bounds(ask, kind, devices, cluster, headroom):
    """Bounds hold for all levers and kinds of sharding, and are no guess for plans that shard little."""
    blocks: list[tuple[Plans, np.ndarray]] = []
    setting = ask(kind, cluster, "bf16")
    found = search(setting, devices, headroom=headroom, keep=lambda *block: blocks.append(block))
    levers, usable = found.space.levers, found.space.usable_bytes
    assert levers is not None
    plans, seconds = (
        concatenate([plans for plans, _ in blocks]),
        np.concatenate([times for _, times in blocks]),
    )
    bounds = ShapeBounds.of(levers, usable, plans)

    def closer(rows: np.ndarray, zero: int) -> np.ndarray:
        by_kind = np.array(list(bounds.passes(rows, zero).values()))
        return by_kind[plans.recompute[rows], np.arange(len(rows))]

    every, unsharded = np.arange(len(plans)), np.flatnonzero(plans.zero <= 1)
    assert levers.recompute == ("none", "selective", "full")
    assert (bounds.busiest <= closer(every, 3) * (1 + 1e-9)).all()
    assert (closer(every, 3) <= seconds * (1 + 1e-9)).all()
    share = closer(unsharded, 1) / seconds[unsharded]
    assert (share <= 1 + 1e-9).all()
    shares = [np.median(share[plans.recompute[unsharded] == kind]) for kind in range(3)]
    assert min(shares) > 0.5
