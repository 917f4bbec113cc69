"""RunEvidence of plans: mechanisms in words, counts of measured runs, and searches that keep to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from planner.training.constraints import Constraints
from planner.training.measured_runs import MeasuredRun, RunEvidence, measured_runs, nothing_proven, proven
from planner.training.mechanisms import mechanisms
from planner.training.proven import grouped
from planner.training.search import search
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.state.adapter import Adapter
from simulator.workload import Training


def setting(model="llama3.1-8b", framework="megatron-core", gpus=16):
    cluster = clusters.get("dgx-h100").resized(gpus)
    training = Training(seq_len=4096, global_batch=64)
    return Setting(models.get(model), cluster, training, frameworks.get(framework))


def run(mechanisms, **changed):
    values = {
        "case": "a",
        "source": "",
        "framework": "megatron-bridge",
        "device": "h100-sxm",
        "generation": "hopper",
        "gpus": 16,
        "model": "llama3.1-8b",
        "parameters": 8e9,
        "experts": False,
        "count": 2,
    }
    return MeasuredRun(**{**values, **changed}, mechanisms=frozenset(mechanisms.split("; ")))


def test_fields_without_effect_are_no_mechanisms():
    assert mechanisms(setting(), Plan(data=16)) == ("16 bits",)
    used = mechanisms(setting(), Plan(tensor=2, sequence_parallel=True, data=8, zero=1, recompute="full"))
    assert set(used) == {
        "16 bits",
        "tensor parallelism",
        "sequence parallelism",
        "ZeRO-1",
        "full recomputation",
    }


def test_a_model_with_experts_on_one_rank_each_is_a_mechanism():
    experts = setting("mixtral-8x7b")
    assert "no expert parallelism" in mechanisms(experts, Plan(data=16))
    assert "expert parallelism" in mechanisms(experts, Plan(data=16, expert=8))


def test_a_micro_batch_counts_by_its_tokens_on_a_context_rank():
    used = mechanisms(setting(), Plan(data=16, micro_batch=8))
    assert {"micro batch above 8k tokens", "micro batch above 16k tokens"} <= set(used)
    assert "micro batch above 32k tokens" not in used
    assert mechanisms(setting(), Plan(data=16, micro_batch=2)) == ("16 bits",)
    split = mechanisms(setting(), Plan(context=4, data=4, micro_batch=8))
    assert not [words for words in split if words.startswith("micro batch")]


def test_how_sequences_are_split_is_a_mechanism():
    """Rings are the usual way; nothing is split on one rank."""
    assert mechanisms(setting(), Plan(context=4, data=4)) == ("16 bits", "context parallelism")
    split = mechanisms(setting(), Plan(context=4, data=4, context_algorithm="ulysses"))
    assert split == ("16 bits", "context parallelism", "context parallelism by ulysses")
    assert mechanisms(setting(), Plan(data=16, context_algorithm="ulysses")) == ("16 bits",)


def test_experts_of_a_rank_count_by_doublings():
    experts = setting("qwen3-30b-a3b", gpus=8)
    assert "over 16 experts a rank" not in mechanisms(experts, Plan(data=8, expert=8))
    used = mechanisms(experts, Plan(data=8, expert=2))
    assert {"over 16 experts a rank", "over 32 experts a rank"} <= set(used)
    assert "over 64 experts a rank" not in used


def near(error, **changed):
    widths = {"hidden": 4096, "feed_forward": 14336}
    return run("16 bits; ZeRO-1", **{**widths, **changed}, errors=(error,))


def test_runs_near_a_plan_say_how_they_were_predicted():
    listed = [near(0.1), near(0.3), near(0.2, feed_forward=20000), near(0.9, hidden=16384), run("fp8")]
    found = RunEvidence(setting(), listed).of(Plan(data=16, zero=1))
    assert (found.near_error.runs, found.near_error.error, found.near_error.models) == (
        3,
        0.2,
        ("llama3.1-8b",),
    )
    assert found.unproven == () and found.doubtful


def test_runs_near_a_plan_that_kept_their_promise_leave_no_doubt():
    found = RunEvidence(setting(), [near(0.1), near(0.05), near(-0.3)]).of(Plan(data=16, zero=1))
    assert found.near_error.error == 0.05 and not found.doubtful


def test_a_promise_far_beyond_the_fastest_run_near_a_plan_is_doubtful():
    listed = [near(0.0, utilisation=0.3), near(0.0, utilisation=0.4), run("fp8", utilisation=0.6)]
    known, plan = RunEvidence(setting(), listed), Plan(data=16, zero=1)
    kept, beyond = known.of(plan, 0.44), known.of(plan, 0.5)
    assert beyond.promise.gain == pytest.approx(0.25) and beyond.promise.run == listed[1]
    assert beyond.unproven == () and beyond.doubtful
    assert not kept.doubtful and known.of(plan).promise is None


def test_runs_with_all_mechanisms_of_a_plan_say_more_than_others_near_it():
    """Runs with context parallelism took a third longer than predicted, those without as long."""
    mechanism = frozenset({"16 bits", "ZeRO-1", "context parallelism"})
    split = [replace(near(error), mechanisms=mechanism) for error in (0.3, 0.34, 0.4)]
    known = RunEvidence(setting(), [*split, *(near(0.01) for _ in range(9))])
    plain, context = known.of(Plan(data=16, zero=1)), known.of(Plan(context=2, data=8, zero=1))
    assert not plain.doubtful and plain.near_error.runs == 12
    assert (context.near_error.runs, context.near_error.error) == (3, 0.34) and context.doubtful
    few = RunEvidence(setting(), [*split[:2], *(near(0.01) for _ in range(9))])
    assert few.of(Plan(context=2, data=8, zero=1)).near_error.runs == 11


def test_a_promise_is_judged_by_the_model_that_was_measured_on_the_device():
    """Another model of these widths reached more, under another release of the code base."""
    other = near(0.0, utilisation=0.5, model="llama2-7b", framework="nemo")
    same = near(0.0, utilisation=0.35, framework="megatron-core")
    plan = Plan(data=16, zero=1)
    assert not RunEvidence(setting(), [other]).of(plan, 0.45).doubtful
    found = RunEvidence(setting(), [other, same]).of(plan, 0.45)
    assert found.promise.run == same and found.doubtful
    elsewhere = replace(same, device="h200-sxm")
    assert RunEvidence(setting(), [other, elsewhere]).of(plan, 0.45).promise.run == other


def test_experts_far_from_all_runs_are_doubtful_and_dense_models_are_not():
    """Runs had all mechanisms, but none with experts of these widths in this number format."""
    experts, plan = setting("mixtral-8x7b"), Plan(data=8, expert=8, zero=1)
    words = "; ".join(mechanisms(experts, plan))
    same, narrow = (
        run(words, experts=True, hidden=hidden, feed_forward=width)
        for hidden, width in ((4096, 14336), (2048, 768))
    )
    for listed, far in (([same, narrow], False), ([narrow], True)):
        found = RunEvidence(experts, listed).of(plan, 0.4)
        assert found.unproven == () and (found.far_from_runs, found.marked) == (far, far)
    dense = RunEvidence(setting(), [run("16 bits; ZeRO-1", hidden=16384)]).of(Plan(data=16, zero=1), 0.4)
    assert not dense.far_from_runs and not dense.marked


def test_adapters_are_evidence_for_adapters_alone():
    tuned = setting()
    tuned = replace(tuned, training=tuned.training.model_copy(update={"adapter": Adapter(rank=16)}))
    plan, full = Plan(data=16), run("16 bits")
    assert RunEvidence(tuned, [full]).of(plan).unproven == ("adapters",)
    assert RunEvidence(tuned, [full, run("16 bits; adapters")]).of(plan).unproven == ()
    assert "adapters" not in mechanisms(setting(), plan)


def test_two_runs_near_a_plan_say_nothing():
    found = RunEvidence(setting(), [near(0.3), near(0.4)]).of(Plan(data=16, zero=1))
    assert found.near_error is None and not found.doubtful


def test_runs_of_one_code_base_and_device_family_count():
    listed = [
        run("16 bits; ZeRO-1"),
        run("16 bits; ZeRO-1; pipeline", device="h200-sxm", count=3),
        run("16 bits; ZeRO-1", framework="torchtitan"),
        run("16 bits; ZeRO-1", generation="blackwell", device="b200"),
        run("16 bits; ZeRO-1", domain=72),
        run("16 bits; ZeRO-1", experts=True),
    ]
    found = RunEvidence(setting(), listed).of(Plan(pipeline=2, data=8, zero=1))
    assert found.runs == {"16 bits": 5, "pipeline": 3, "ZeRO-1": 5}
    assert (found.fewest, found.together, found.unproven) == (3, 3, ())


def test_a_mechanism_without_a_run_is_named():
    found = RunEvidence(setting(), [run("16 bits; ZeRO-1")]).of(Plan(data=16, zero=3))
    assert found.unproven == ("ZeRO-3",)
    assert found.fewest == 0


def test_mechanisms_that_no_run_had_together_are_named():
    listed = [run("16 bits; ZeRO-3"), run("16 bits; pipeline; ZeRO-1"), run("16 bits; pipeline")]
    found = RunEvidence(setting(), listed).of(Plan(pipeline=2, data=8, zero=3))
    assert found.unproven == ("pipeline with ZeRO-3",)
    assert found.fewest == 2
    assert RunEvidence(setting(), listed).of(Plan(pipeline=2, data=8, zero=1)).unproven == ()


def test_the_nearest_run_shares_most_mechanisms_then_size():
    listed = [
        run("16 bits; pipeline", case="other"),
        run("16 bits; ZeRO-1", case="large", parameters=4e11),
        run("16 bits; ZeRO-1", case="like"),
    ]
    assert RunEvidence(setting(), listed).of(Plan(data=16, zero=1)).nearest.case == "like"


def test_a_proven_search_returns_proven_plans_only():
    asked = setting()
    result = search(asked, 16, proven(asked, Constraints()), headroom=0.2, alternatives=True)
    known = RunEvidence(asked)
    assert len(result.plans)
    assert not any(known.of(plan).unproven for plan in result.plans)


def test_a_proven_search_ranks_all_plans_whose_mechanisms_were_measured_together():
    asked = setting(gpus=8)
    # Without levers: a structure has one plan. With them, ``test_levers`` compares every combination.
    asked = replace(
        asked, framework=asked.framework.changed({"offers": {"schedule": ["1f1b", "interleaved"]}})
    )
    some = Constraints.of({}, {"tensor": 2, "pipeline": 2, "micro_batch": 2})
    everything = search(asked, 8, some, top=100_000, headroom=0.2)
    known = RunEvidence(asked)
    times = zip(everything.plans, everything.step.time, strict=True)
    together = [(plan, time) for plan, time in times if known.together(mechanisms(asked, plan))]
    measured = [plan for plan, time in together if time >= known.shortest_s]
    found = search(asked, 8, proven(asked, some), top=100_000, headroom=0.2)
    assert 0 < len(measured) < len(everything.plans)
    assert [plan.describe() for plan in found.plans] == [plan.describe() for plan in measured]
    assert found.scored + sum(found.removed.values()) == found.candidates


def test_only_one_run_with_all_mechanisms_proves_a_plan():
    apart = [run("16 bits; pipeline; ZeRO-1"), run("16 bits; pipeline; ZeRO-3"), run("16 bits; ZeRO-1; fp8")]
    known = RunEvidence(setting(), apart)
    assert known.together(("16 bits", "pipeline", "ZeRO-1"))
    assert not known.together(("pipeline", "ZeRO-1", "ZeRO-3"))


def test_runs_near_a_plan_are_its_only_proof():
    known = RunEvidence(setting(), [near(0.0), run("16 bits; pipeline", hidden=16384)])
    assert known.together(("16 bits", "ZeRO-1")) and not known.together(("16 bits", "pipeline"))
    assert "about these widths in 16 bits" in known.basis
    far = RunEvidence(setting(), [run("16 bits; pipeline", hidden=16384)])
    assert far.together(("16 bits", "pipeline")) and "widths" not in far.basis


def test_a_proven_search_leaves_out_plans_that_promise_far_more_than_the_fastest_run():
    asked, some = setting(gpus=8), Constraints.of({}, {"tensor": 2, "pipeline": 2, "micro_batch": 2})
    used = "16 bits; ZeRO-1; pipeline; virtual stages; tensor parallelism; sequence parallelism"
    slow = RunEvidence(asked, [replace(near(0.0, utilisation=0.45), mechanisms=frozenset(used.split("; ")))])
    quick = RunEvidence(asked, [replace(each, utilisation=0.9) for each in slow.runs])
    without, found = (search(asked, 8, replace(some, keeps=keeps), top=100_000) for keeps in (quick, slow))
    left = [time for time in without.step.time if time >= slow.shortest_s]
    assert 0 < len(left) < without.scored and without.removed["beyond"] == 0
    assert found.step.time.tolist() == pytest.approx(left)
    assert found.removed["beyond"] == without.scored - found.scored > 0
    assert found.scored + sum(found.removed.values()) == found.candidates
    dear = search(asked, 8, replace(some, keeps=slow), objective="energy", top=100_000)
    assert dear.scored == found.scored


def test_plans_with_the_mechanisms_of_others_group_whatever_their_degrees():
    asked = setting("qwen3-30b-a3b")
    # Both hold 8 experts a rank and 2k tokens; the first with the context of the second is no valid plan.
    plans = Plans.of(
        [Plan(context=4, data=4, expert=16, micro_batch=2), Plan(context=2, data=8, expert=16, micro_batch=1)]
    )
    found = {words: rows.tolist() for words, _, rows in grouped(asked, plans, levers=True)}
    assert found == {frozenset(mechanisms(asked, plans.plan(0))): [0, 1]}


def test_a_proven_search_keeps_state_on_the_device_where_no_run_moved_it():
    asked = setting("llama3.1-70b", gpus=8)
    some = Constraints.of({"data": 8}, {"micro_batch": 2})
    placed = search(asked, 8, some, top=5, offload=True)
    assert len(placed.plans) and all(plan.place for plan in placed.plans)
    found = search(asked, 8, proven(asked, some), top=5, offload=True)
    # No run of Megatron Core near it shards weights, so that only plans with whole weights are left.
    assert not len(found.plans) and found.removed["unproven"] + found.removed["memory"] > 0


def test_a_fixed_value_without_a_run_is_refused_by_name():
    with pytest.raises(InputError, match="ZeRO-2"):
        proven(setting(), Constraints.of({"zero": 2}))
    with pytest.raises(InputError, match="maxtext on hopper"):
        proven(setting(framework="maxtext"), Constraints())


def test_nothing_proven_names_what_lacks_a_run():
    assert "ZeRO-2" in str(nothing_proven(setting()))


def test_shipped_runs_hold_configurations_of_known_frameworks():
    assert len(measured_runs()) > 500
    assert {each.framework for each in measured_runs()} <= set(frameworks.names())
