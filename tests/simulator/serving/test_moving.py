"""Moves of running sequences: nothing is lost, bytes are counted, an inert policy changes nothing."""

from pathlib import Path

import pytest

from core.errors import InputError
from simulator.serving.bytes_moved import moves_figures
from simulator.serving.replica.guards import guarding
from simulator.serving.result import serve
from simulator.serving.routers.migration import Llumnix
from simulator.serving.scenario import make_serving


def run(requests=200, rate=40.0, output=None, prompt=None, **deployment):
    """Replicas with few KV blocks under a load that fills them."""
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": prompt or {"kind": "lognormal", "median": 200, "sigma": 1.2, "most": 3000},
            "output": output or {"kind": "uniform", "low": 10, "high": 600},
        },
        "deployment": {"replicas": 3, "options": {"kv_blocks": 400, "max_context": 4096}, **deployment},
    }
    with guarding():
        return serve(make_serving(data, "test", Path()))


def llumnix(**options):
    return {"kind": "freeness", "migrate": {"kind": "llumnix", **options}}


@pytest.mark.parametrize("how", ["live", "recompute", "sooner"])
@pytest.mark.parametrize(
    "pool",
    [
        {},
        {"engine": "vllm-0.11"},
        {"pipeline": 2},
        {"options": {"kv_blocks": 400, "max_context": 4096, "preemption": "swap"}},
    ],
    ids=str,
)
def test_every_request_ends_once_and_all_blocks_are_free(how, pool):
    found = run(router=llumnix(how=how, threshold=40.0), **pool)
    moves = found.fleet.moves.counts
    assert moves.copied + moves.recomputed > 1
    assert sorted(record.serial for record in found.records) == list(range(200))
    for member in found.fleet.members:
        for batcher in member.replica.batchers:
            assert batcher.kv.free == batcher.kv.total
            assert batcher.running == 0
    columns = found.records.columns()
    assert (columns["first_s"] <= columns["last_s"]).all()


def test_bytes_are_those_of_the_copies():
    found = run(router=llumnix(threshold=40.0))
    moves, token = found.fleet.moves.counts, found.setting.pools[0].costs.kv_token_bytes
    assert moves.bytes == pytest.approx(sum(tokens for *_, tokens in moves.lanes) * token)
    sent = sum(lane.bytes for lane in found.fleet.lanes if lane.name == "peer links out")
    assert sent == pytest.approx(moves.bytes)


def test_a_policy_that_moves_nothing_changes_nothing():
    plain, inert = run(router="freeness"), run(router=llumnix(threshold=-1e6))
    assert inert.fleet.moves.counts.copied == 0
    ours, theirs = inert.records.columns(), plain.records.columns()
    for name in ("first_s", "last_s"):
        assert ours[name].tobytes() == theirs[name].tobytes()


def test_a_drained_replica_is_free_sooner_where_its_sequences_leave():
    long = {"kind": "fixed", "tokens": 2000}
    drains = [{"time": 1.0, "replica": 0}]
    options = {"kv_blocks": 4000, "max_context": 8192}
    stays = run(30, 30, long, drains=drains, options=options)
    leaves = run(
        30, 30, long, drains=drains, options=options,
        router={"kind": "round-robin", "migrate": {"kind": "drain", "interval": 0.01}},
    )  # fmt: skip
    assert leaves.fleet.members[0].last_s < 0.6 * stays.fleet.members[0].last_s
    assert moves_figures(leaves.fleet)["migrations"]["copied"] > 3


def test_the_stop_of_a_live_move_does_not_grow_with_the_prompt():
    stops = {}
    for tokens in (256, 8000):
        found = run(
            1,
            1,
            {"kind": "fixed", "tokens": 3000},
            {"kind": "fixed", "tokens": tokens},
            drains=[{"time": 3.0, "replica": 0}],
            options={"kv_blocks": 4000, "max_context": 16384},
            router={"kind": "round-robin", "migrate": {"kind": "drain"}},
        )
        stops[tokens] = found.fleet.moves.counts.stops_s
    assert stops[256] == pytest.approx(stops[8000], rel=0.3)


def test_the_same_seed_gives_the_same_bytes():
    first, second = (run(router=llumnix(threshold=40.0)).records.columns() for _ in range(2))
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        ({"replicas": 1, "router": llumnix()}, r"router\.migrate.*none has more than one"),
        ({"router": {"kind": "freeness", "migrate": {"kind": "lumnix"}}}, "llumnix"),
        ({"router": {"kind": "freeness", "migrate": {}}}, "key 'kind' is missing"),
        ({"router": {"migrate": {"kind": "llumnix"}}}, "needs the key 'kind'"),
        ({"router": llumnix(treshold=1)}, "threshold"),
    ],
)
def test_senseless_moves_are_refused(deployment, words):
    with pytest.raises(InputError, match=words):
        run(**deployment)


def test_old_and_new_spelling_of_a_router_say_the_same():
    old = run(router="least-loaded", router_options={"waiting_weight": 2})
    new = run(router={"kind": "least-loaded", "waiting_weight": 2})
    assert list(old.records) == list(new.records)


class Host:
    """A replica of numbers."""

    def __init__(self, index, free, load, queue=0, opened=True):
        self.index, self.free, self.load, self.queue, self.open = index, free, load, queue, opened

    def blocks(self, sequence):
        return sequence.size

    def movable(self):
        return [Small(self.index)] if self.load else []


class Small:
    """A sequence of ten blocks."""

    size, priority = 10, 0

    def __init__(self, serial):
        self.request = type("Request", (), {"serial": serial})


def test_llumnix_pairs_the_least_free_with_the_freest():
    hosts = [Host(0, 2, 10), Host(1, 400, 10), Host(2, 900, 10), Host(3, 5, 10)]
    moves = Llumnix().moves(hosts)
    assert [(move.source, move.target) for move in moves] == [(0, 2), (3, 1)]


def test_llumnix_gives_nothing_to_a_replica_with_a_queue():
    assert not Llumnix().moves([Host(0, 2, 10), Host(1, 900, 10, queue=3)])


def swapped(**options):
    """Sequences that change places on a replica with few KV blocks."""
    options = {
        "kv_blocks": 200,
        "max_context": 4096,
        "preemption": "swap",
        "scheduler": "changing-priority",
        "scheduler_options": {"every": 0.5},
        **options,
    }
    return run(120, 20.0, replicas=1, options=options)


@pytest.mark.slow
def test_swaps_in_groups_beside_steps_and_kept_cost_less_each():
    slow = swapped(swap_copies="blocks")
    assert slow.metrics.preemptions > 20
    ends = [slow.metrics.makespan_s]
    for options in (
        {"swap_copies": "groups"},
        {"swap_copies": "groups", "swap_asynchronous": True},
        {"swap_copies": "groups", "swap_asynchronous": True, "swap_keeps": True},
    ):
        found = swapped(**options)
        assert len(found.records) == 120
        ends.append(found.metrics.makespan_s)
    assert ends[0] > ends[1] > ends[2]
    assert ends[3] <= ends[2] * 1.02


def test_without_preemptions_swaps_change_nothing():
    room = {"kv_blocks": 8000, "scheduler": "chunked", "scheduler_options": {}}
    plain, grouped = swapped(**room), swapped(**room, swap_copies="groups", swap_keeps=True)
    assert list(plain.records) == list(grouped.records)
