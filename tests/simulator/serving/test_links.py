"""SharedLinks shared by flows: the training engine's rates, bytes kept, and what a tier on them costs."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.engine import Clock, Flow, Stream, TaskGraph
from simulator.serving.replica.guards import guarding
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.state import SharedLane, SharedLinks
from simulator.serving.state.stores import copied_bytes
from tests.simulator.serving.conftest import conversations


def test_one_flow_has_the_whole_link():
    links, lane = SharedLinks(), SharedLane("host", 10.0)
    flow, end = links.send(1.0, 50.0, (lane,))
    assert end == pytest.approx(6.0)
    links.run(4.0)
    assert flow.left == pytest.approx(20.0)
    links.run(7.0)
    assert flow.left == 0.0 and lane.users == 0 and lane.bytes == 50.0


def test_flows_share_fairly_and_a_slower_lane_leaves_the_rest():
    links, wide, narrow = SharedLinks(), SharedLane("wide", 10.0), SharedLane("narrow", 2.0)
    links.send(0.0, 20.0, (wide, narrow))
    _, end = links.send(0.0, 40.0, (wide,))
    assert end == pytest.approx(5.0)


def drawn(seed, count=12):
    """Flows at random times over three lanes."""
    random = np.random.default_rng(seed)
    times = np.sort(random.uniform(0, 10, count))
    sizes = random.uniform(1, 30, count)
    routes = [tuple(random.choice(3, random.integers(1, 3), replace=False)) for _ in range(count)]
    return times, sizes, routes


@pytest.mark.parametrize("seed", range(5))
def test_ends_are_those_of_the_training_engines_flows(seed):
    times, sizes, routes = drawn(seed)
    rates = [5.0, 3.0, 8.0]
    links, lanes = SharedLinks(), [SharedLane(str(rate), rate) for rate in rates]
    flows = []
    for time, size, route in zip(times, sizes, routes, strict=True):
        flows.append(links.send(time, size, tuple(lanes[one] for one in route))[0])
    links.run(1e6)
    assert [flow.end_s for flow in flows] == pytest.approx(engine_ends(times, sizes, routes, rates))


def engine_ends(times, sizes, routes, rates):
    """Ends of the same flows on the clock of the training engine; alone, each would run at 1,000 B/s."""
    graph = TaskGraph()
    links = [graph.add_link(rate) for rate in rates]
    ends = []
    for number, (time, size, route) in enumerate(zip(times, sizes, routes, strict=True)):
        wait = graph.add(graph.lane_of(number, Stream("wait")), float(time), "wait")
        task = graph.add(graph.lane_of(number, Stream("flow")), float(size) / 1e3, "flow", after=[wait])
        graph.flows[task] = Flow(1e3, tuple(links[one] for one in route))
        ends.append(task)
    return [float(end) for end in Clock(graph).run()[1][ends]]


def test_small_copies_cost_their_gaps():
    large, small = (copied_bytes(1e9, block, 50e9) for block in (2e6, 32e3))
    assert 3.0 < small / large < 5.0


def documents(rate=4.0, requests=150, **tier):
    """Prompts of six documents of 512 tokens."""
    data = {
        "model": "mistral-7b",
        "cluster": "dgx-a100-80gb",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": 100,
            "output": 16,
            "chunks": {"documents": 60, "per_prompt": 6, "tokens": 512, "zipf": 0.5},
        },
        "deployment": {"tiers": [{"place": "host", "gigabytes": 100, **tier}]},
    }
    with guarding():
        return serve(make_serving(data, "test", Path()))


def columns(run):
    return run.records.columns()


def test_documents_in_a_tier_need_their_share_of_computing():
    whole, blended, parallel = (documents(recompute=share) for share in (1.0, 0.15, 0.0))
    assert whole.metrics.hit_rate == 0.0
    assert blended.metrics.hit_rate == pytest.approx(0.85 * parallel.metrics.hit_rate, rel=0.02)
    means = [float((c["first_s"] - c["arrival_s"]).mean()) for c in map(columns, (whole, blended, parallel))]
    assert means[0] > 1.5 * means[1] > 1.5 * means[2]


def test_bytes_over_the_host_link_are_those_of_the_documents():
    run = documents(recompute=0.0, block_bytes=1e9)
    (store,) = run.fleet.stores
    lane = next(lane for lane in run.fleet.lanes if lane.name == "host link in")
    token = run.setting.pools[0].costs.kv_token_bytes
    assert lane.bytes == pytest.approx(store.tokens_read * token, rel=1e-3)
    assert store.tokens_read > 0


def test_the_same_seed_gives_the_same_bytes():
    first, second = (documents(recompute=0.15).records.columns() for _ in range(2))
    assert all((first[name] == second[name]).all() for name in first)


def test_documents_need_tiers_that_say_what_is_computed_again():
    with pytest.raises(InputError, match=r"workload\.chunks.*finds prefixes only"):
        documents()


def test_a_tier_below_one_document_is_refused():
    with pytest.raises(InputError, match=r"tiers\.0\.gigabytes.*holds no unit of 512 tokens"):
        documents(recompute=0.1, gigabytes=1e-3)


def test_a_tier_below_one_span_is_refused():
    data = {
        "model": "mistral-7b",
        "cluster": "dgx-a100-80gb",
        "workload": {"kind": "serving", "arrivals": {"kind": "burst"}, "input": 100, "output": 16},
        "deployment": {"tiers": [{"place": "host", "gigabytes": 1e-3}]},
    }
    with pytest.raises(InputError, match=r"tiers\.0\.gigabytes.*holds no unit of 64 tokens"):
        make_serving(data, "test", Path())


def guarded_conversations(recompute, place="host"):
    """Conversations on two replicas over a tier on links."""
    tier = {"place": place, "gigabytes": 100, "recompute": recompute}
    with guarding():
        return conversations(replicas=2, tiers=[tier])


@pytest.mark.parametrize("place", ["host", "nvme", "remote"])
def test_linked_tiers_hold_prefixes_and_lose_nothing(place):
    plain, tiered = guarded_conversations(1.0, place), guarded_conversations(0.0, place)
    assert len(tiered.records) == 200
    assert tiered.metrics.hit_rate > plain.metrics.hit_rate + 0.05
    for member in tiered.fleet.members:
        (batcher,) = member.replica.batchers
        assert batcher.kv.free == batcher.kv.total
    assert sum(lane.bytes for lane in tiered.fleet.lanes if lane.name.endswith("out")) > 0
