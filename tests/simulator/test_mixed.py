"""Steps whose stages or replicas lie on groups of different nodes."""

from pathlib import Path

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.plan import Plans
from simulator.scenario import make_mixed, make_scenario
from simulator.training import predict
from simulator.training.mixed import predict_mixed, simulate_mixed
from simulator.training.step_graph.build import simulate
from simulator.uncertainty import band, mixed_half_width

A100, H100 = "dgx-a100-80gb", "dgx-h100"
NETWORK = {name: clusters.get(name).network.model_dump() for name in (A100, H100)}
STAGES = {"stages": {"one": 2, "other": 2}}
REPLICAS = {"replicas": {"one": 1, "other": 1}}
PLAN = {"tensor": 4, "sequence_parallel": True, "pipeline": 4, "zero": 1}


def question(one=A100, other=H100, join=NETWORK[A100], nodes=2, model="llama3-8b", batch=64, **keys):
    """Return a scenario on two groups of nodes, "one" and "other"."""
    groups = [
        {"name": name, "cluster": cluster, "nodes": nodes}
        for name, cluster in (("one", one), ("other", other))
    ]
    return {
        "model": model,
        "cluster": {"name": "mixed", "groups": groups, "join": join},
        "gpus": 16 * nodes,
        "workload": {"seq_len": 4096, "global_batch": batch},
        "plan": PLAN,
        "placement": STAGES,
        **keys,
    }


def step(data):
    mixed = make_mixed(data, "test", Path())
    return simulate_mixed(mixed.setting, mixed.plan)


def closed(data):
    mixed = make_mixed(data, "test", Path())
    return predict_mixed(mixed.setting, mixed.plan)


def uniform(cluster, plan=PLAN, batch=64, gpus=32):
    data = question(batch=batch) | {"cluster": cluster, "gpus": gpus, "plan": plan}
    del data["placement"]
    found = make_scenario(data, "test", Path())
    return simulate(found.setting, found.plan).period


@pytest.mark.parametrize("placement", [STAGES, REPLICAS], ids=["stages", "replicas"])
@pytest.mark.parametrize("name", [A100, H100])
def test_groups_of_one_kind_are_a_cluster_of_that_kind(name, placement):
    """Two groups that are joined by their own kind of network differ in nothing from one cluster."""
    plan = PLAN | ({"rank_order": "tensor-context-pipeline-data"} if placement is REPLICAS else {})
    found = step(question(name, name, NETWORK[name], plan=plan, placement=placement))
    assert found.seconds == pytest.approx(uniform(name, plan), rel=1e-9)


@pytest.mark.slow
def test_a_mix_lies_between_its_kinds():
    for placement, order in ((STAGES, "data-pipeline"), (REPLICAS, "pipeline-data")):
        plan = PLAN | {"rank_order": f"tensor-context-{order}"}
        mixed = step(question(plan=plan, placement=placement)).seconds
        assert uniform(H100, plan) < mixed <= uniform(A100, plan) * (1 + 1e-9)


def test_stages_may_lie_in_any_order():
    mixed = step(question(placement={"stages": ["one", "other", "one", "other"]}))
    assert [run.share.stages for run in mixed.groups] == [(0, 2), (1, 3)]
    assert uniform(H100) < mixed.seconds < uniform(A100)


@pytest.mark.slow
def test_layers_by_speed_beat_equal_layers():
    equal = step(question(placement=STAGES))
    same = step(question(placement={**STAGES, "layers": {"one": 8, "other": 8}}))
    by_speed = step(question(placement={**STAGES, "layers": {"one": 5, "other": 11}}))
    assert same.seconds == pytest.approx(equal.seconds, rel=1e-9)
    assert by_speed.seconds < 0.8 * equal.seconds
    slow, fast = by_speed.groups
    assert (slow.share.layers, fast.share.layers) == (5, 11)
    assert slow.peak_memory < fast.peak_memory


@pytest.mark.slow
def test_micro_batches_by_speed_beat_equal_ones():
    equal = step(question(placement=REPLICAS))
    by_speed = step(question(placement={**REPLICAS, "micro_batches": {"one": 19, "other": 45}}))
    assert by_speed.seconds < 0.8 * equal.seconds
    assert [run.share.micro_batches for run in by_speed.groups] == [19, 45]


@pytest.mark.parametrize("placement", [STAGES, REPLICAS], ids=["stages", "replicas"])
def test_a_narrow_join_slows_what_crosses_it(placement):
    narrow = {"fabric": "tcp", "nics_per_node": 1, "nic_gbps": 10, "nodes_per_leaf": 2}
    times = [step(question(join=join, placement=placement)).seconds for join in (NETWORK[A100], narrow)]
    assert times[1] > 1.3 * times[0]


def test_a_join_inside_no_node_is_crossed_even_by_neighbours():
    """Stages of 2 devices would sit in one node of 8, were they of one kind."""
    small = {"tensor": 2, "pipeline": 2}
    narrow = {"fabric": "tcp", "nics_per_node": 1, "nic_gbps": 10, "nodes_per_leaf": 2}
    data = question(
        join=narrow, nodes=1, gpus=4, plan=small, placement={"stages": ["one", "other"]}, model="opt-1.3b"
    )
    wide = question(nodes=1, gpus=4, plan=small, placement={"stages": ["one", "other"]}, model="opt-1.3b")
    assert step(data).seconds > 1.1 * step(wide).seconds


def test_a_step_that_does_not_fit_says_which_group():
    small = question(A100, "dgx-1v", model="llama3-70b", plan=PLAN | {"zero": 0})
    small["workload"] = {**small["workload"], "precision": "fp16"}
    runs = step(small).groups
    assert [run.fits for run in runs] == [False, False]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"placement": {"stages": ["one", "two"]}}, "unknown group 'two'"),
        ({"placement": {"stages": ["one"] * 3}}, "stages names 3 stages, the plan has pipeline = 4"),
        (
            {"placement": {"stages": {"one": 3, "other": 1}}},
            "group 'one' has 16 devices; its part .* needs 24",
        ),
        ({"placement": {"replicas": {"one": 1}}}, "replicas add up to 1, the plan has data = 2"),
        (
            {"placement": {**REPLICAS, "micro_batches": {"one": 3, "other": 4}}},
            "= 7 does not equal global_batch",
        ),
        (
            {
                "placement": {**REPLICAS, "micro_batches": {"one": 30, "other": 34}},
                "plan": PLAN | {"zero": 3},
            },
            "zero: 3 communicates in each micro batch",
        ),
        ({"placement": {**STAGES, "state": {"one": 1, "other": 2}}}, "state: needs the groups of replicas"),
        ({"placement": {**REPLICAS, "micro_batch": {"one": 1}}}, "micro_batch: needs the groups of replicas"),
        ({"placement": {**REPLICAS, "state": {"one": 0, "other": 1}}}, "state.one: must be above 0"),
        (
            {"placement": {**REPLICAS, "state": {"one": 1, "other": 2}}, "plan": PLAN | {"zero": 0}},
            "the plan has zero: 0",
        ),
        (
            {"placement": {**REPLICAS, "micro_batch": {"one": 1, "other": 2}}},
            "= 63 does not equal global_batch = 64",
        ),
        ({"placement": {}}, "give either stages or replicas"),
        ({"placement": {"stages": {"one": 2**40, "other": 2}}}, "must be at most 4,096 stages"),
        ({"placement": {**STAGES, "layers": {"one": 8, "other": 9}}}, "add up to 34"),
        ({"placement": None}, "key 'placement' is missing"),
        ({"gpus": 64}, "mixed has 32 devices, asked for 64"),
        ({"workload": {"seq_len": 4096, "global_batch": 64, "precision": "fp8"}}, "group 'one'"),
        ({"plan": PLAN | {"schedule": "dualpipe"}}, "dualpipe"),
    ],
)
def test_placements_that_cannot_be(changes, words):
    with pytest.raises(InputError, match=words):
        step(question() | changes)


def test_a_cluster_of_one_kind_takes_no_placement():
    data = question() | {"cluster": H100}
    assert make_mixed(data, "test", Path()) is None
    with pytest.raises(InputError, match="placement: needs a cluster with groups"):
        make_scenario(data, "test", Path())
    with pytest.raises(InputError, match="is a cluster of groups"):
        make_scenario({key: value for key, value in question().items() if key != "placement"}, "test", Path())


@pytest.mark.parametrize("placement", [STAGES, REPLICAS], ids=["stages", "replicas"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_the_closed_form_of_groups_of_one_kind_is_that_of_a_cluster(placement, zero):
    order = "pipeline-data" if placement is REPLICAS else "data-pipeline"
    plan = PLAN | {"zero": zero, "rank_order": f"tensor-context-{order}"}
    found = closed(question(H100, H100, NETWORK[H100], plan=plan, placement=placement))
    alone = question() | {"cluster": H100, "gpus": 32, "plan": plan}
    del alone["placement"]
    expected = make_scenario(alone, "test", Path())
    seconds = predict(expected.setting, Plans.of(expected.plan)).time[0]
    assert found.seconds == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("plan", "placement"),
    [
        (PLAN, STAGES),
        (PLAN, {**STAGES, "layers": {"one": 5, "other": 11}}),
        (PLAN, {"stages": ["one", "other", "one", "other"]}),
        (PLAN | {"schedule": "gpipe"}, STAGES),
        (PLAN | {"schedule": "interleaved", "virtual_pipeline": 2}, STAGES),
        (PLAN | {"overlap_pipeline": False}, STAGES),
        (PLAN, REPLICAS),
        (PLAN, {**REPLICAS, "micro_batches": {"one": 19, "other": 45}}),
    ],
)
def test_the_closed_form_agrees_with_the_engine_on_a_mixed_cluster(plan, placement):
    data = question(plan=plan, placement=placement)
    found, engine = closed(data), step(data)
    assert found.seconds == pytest.approx(engine.seconds, rel=0.015)
    for one, other in zip(found.groups, engine.groups, strict=True):
        assert one.share == other.share
        assert one.compute_s == pytest.approx(other.compute_s, rel=0.01)
        assert one.peak_memory == pytest.approx(other.peak_memory, rel=0.02)


@pytest.mark.slow
def test_sharded_parameters_are_gathered_over_the_slowest_links():
    """As far from the engine as on one cluster: 5 % too fast with replicas outside the pipeline."""
    data = question(plan=PLAN | {"zero": 3}, placement=REPLICAS)
    assert closed(data).seconds == pytest.approx(step(data).seconds, rel=0.06)
    uncrossed = question(A100, A100, NETWORK[A100], plan=PLAN | {"zero": 3}, placement=REPLICAS)
    assert closed(data).seconds >= closed(uncrossed).seconds * (1 - 1e-9)


SHARDED = {"tensor": 1, "zero": 3, "recompute": "full"}


def sharded(**placement):
    """ZeRO-3 on one node of each kind."""
    counts = {"replicas": {"one": 8, "other": 8}}
    return question(nodes=1, batch=96, plan=SHARDED, placement={**counts, **placement})


def test_sizes_by_speed_beat_equal_ones():
    equal, by_speed = closed(sharded()), closed(sharded(micro_batch={"one": 1, "other": 2}))
    assert by_speed.seconds < 0.8 * equal.seconds
    assert [group.share.micro_batches for group in by_speed.groups] == [4, 4]


def test_unequal_state_moves_bytes_and_slows_collectives_up_to_a_bound():
    even, equal_weights = closed(sharded()), closed(sharded(state={"one": 2, "other": 2}))
    assert even.seconds == equal_weights.seconds
    assert [group.peak_memory for group in even.groups] == [g.peak_memory for g in equal_weights.groups]
    uneven = closed(sharded(state={"one": 1, "other": 3}))
    less, more = (
        after.peak_memory - before.peak_memory
        for before, after in zip(even.groups, uneven.groups, strict=True)
    )
    assert less == pytest.approx(-more, rel=1e-9)
    assert more > 0
    assert even.seconds <= uneven.seconds <= 1.25 * even.seconds


@pytest.mark.parametrize("state", [{}, {"one": 1, "other": 3}])
def test_the_closed_form_of_sharded_replicas_agrees_with_the_engine(state):
    data = sharded(micro_batch={"one": 1, "other": 2}, **({"state": state} if state else {}))
    found, engine = closed(data), step(data)
    assert found.seconds == pytest.approx(engine.seconds, rel=0.015)
    for one, other in zip(found.groups, engine.groups, strict=True):
        assert one.peak_memory == pytest.approx(other.peak_memory, rel=0.02)


def test_the_band_of_a_mixed_step_is_wider_than_that_of_each_group_alone():
    mixed = make_mixed(question(), "test", Path())
    half = mixed_half_width(mixed.setting, mixed.plan, predict_mixed(mixed.setting, mixed.plan))
    alone = []
    for cluster in (A100, H100):
        data = question() | {"cluster": cluster}
        del data["placement"]
        found = make_scenario(data, "test", Path())
        plans = Plans.of(found.plan)
        alone.append(float(band(found.setting, predict(found.setting, plans))[0]))
    assert half > max(alone)
