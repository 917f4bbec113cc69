"""Adapters: popularity, memory, loading and cost in a step."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InfeasibleError, InputError
from hwmodels.device import devices
from simulator.models import models
from simulator.serving.adapters.popularity import AdapterDraws, mean_distinct
from simulator.serving.adapters.sgmv import Sgmv
from simulator.serving.adapters.shapes import AdapterShapes
from simulator.serving.adapters.store import AdapterStore
from simulator.serving.question.adapters import Adapters
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.request import Request

A100 = devices.get("a100-sxm-80gb")


def adapters(**keys) -> Adapters:
    return Adapters.model_validate({"count": 20, "rank": 16, **keys})


def setting(model: str = "llama3.2-1b", requests: int = 60, **deployment):
    data = {
        "model": model,
        "cluster": "dgx-a100-80gb",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate": 20},
            "input": 100,
            "output": 40,
        },
        "deployment": deployment,
    }
    return make_serving(data, "test", Path())


@pytest.mark.parametrize(
    "popularity", ["uniform", "identical", "distinct", {"zipf": 1.5}, {"shares": [3, 1]}]
)
def test_mean_of_distinct_adapters_is_that_of_draws(popularity):
    asked = adapters(popularity=popularity)
    draws = AdapterDraws(asked, [1])
    request = Request(0, 0.0, 1, 1)
    sets = [{draws.assign(request).adapter for _ in range(8)} for _ in range(2000)]
    assert np.mean([len(one) for one in sets]) == pytest.approx(mean_distinct(asked, 8)[8], rel=0.03)


def test_a_program_keeps_its_adapter():
    draws = AdapterDraws(adapters(), [1])
    turns = {draws.assign(Request(index, 0.0, 1, 1, program=7, turn=index)).adapter for index in range(9)}
    assert len(turns) == 1


def test_bytes_are_those_of_two_matrices_a_product():
    """Llama 2 7B, rank 8, attention's four products of 4096 x 4096: 16.8 MB in 16 bits."""
    shapes = AdapterShapes.of(models.get("llama2-7b"), adapters(rank=8, products="attention"))
    assert shapes.bytes == 2 * 32 * 4 * 8 * (4096 + 4096)


def test_sgmv_is_as_punica_measured_it():
    """37 us with one adapter and 116 us with 64, one product of hidden size 4096 and rank 16."""
    shapes = AdapterShapes(layers=1, products=1, widths=8192.0, rank=16)
    seconds = Sgmv().seconds(np.array([1.0, 64.0]), shapes, 1, A100)
    assert seconds == pytest.approx([37e-6, 116e-6], rel=1e-3)


def test_a_rank_tending_to_zero_costs_launches_alone():
    narrow = AdapterShapes(layers=1, products=1, widths=8192.0, rank=0)
    assert narrow.bytes == 0.0
    free = Sgmv(first_s=0.0, further_s=0.0)
    assert free.seconds(np.array([1.0, 64.0]), narrow, 1, A100) == pytest.approx([0.0, 0.0])


def test_one_adapter_merged_into_the_weights_costs_its_copy_alone():
    plain = serve(setting(engine="vllm-0.6"))
    options = {"scheduler": "one-adapter"}
    keys = {"count": 1, "rank": 16, "kernel": "merged", "memory": 0.1}
    merged = serve(setting(engine="vllm-0.6", options=options, adapters=keys))
    late = merged.records.columns()["last_s"] - plain.records.columns()["last_s"]
    assert merged.to_dict()["adapters"]["misses"] == 1
    assert np.abs(late).max() < 0.1


def test_a_store_keeps_what_is_in_use():
    store = AdapterStore(room=2, load_s=1.0)
    assert [store.take(1, 0.0), store.take(2, 0.0), store.take(1, 5.0)] == [1.0, 2.0, 5.0]
    store.leave(2)
    assert store.take(3, 10.0) == 11.0
    assert (store.holds(1), store.holds(2), store.holds(3)) == (True, False, True)


def test_adapters_take_kv_blocks():
    without, with_them = (setting(adapters=keys) for keys in (None, {"count": 10, "rank": 64, "memory": 4}))
    assert with_them.pools[0].costs.kv_blocks < without.pools[0].costs.kv_blocks


def test_a_router_that_knows_adapters_loads_fewer():
    keys = {"count": 40, "rank": 16, "memory": 0.5}
    loads = [
        serve(setting(requests=400, replicas=4, router=router, adapters=keys)).to_dict()["adapters"]["misses"]
        for router in ("round-robin", "adapter-aware")
    ]
    assert loads[1] < 0.6 * loads[0]


@pytest.mark.parametrize("scheduler", ["prefill-first", "chunked"])
def test_requests_are_conserved(scheduler):
    result = serve(
        setting(
            requests=200,
            options={"scheduler": scheduler, "max_sequences": 8},
            adapters={"count": 50, "rank": 8},
        )
    )
    assert len(result.records) == 200


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"count": 5, "rank": 0}, "rank.*at least 1"),
        ({"count": 2, "rank": 8, "popularity": {"shares": [1, 1, 1]}}, r"at most count \(2\)"),
        ({"count": 2, "rank": 8, "popularity": "zipff"}, "popularity"),
        ({"count": 2, "rank": 8, "kernel": "sgmm"}, "did you mean 'sgmv'"),
        ({"count": 2, "rank": 8, "kernel": "merged"}, "one-adapter"),
    ],
)
def test_bad_input(keys, message):
    with pytest.raises(InputError, match=message):
        setting(options={"scheduler": "chunked"}, adapters=keys)


def test_adapters_that_do_not_fit_beside_one_block_of_kv():
    with pytest.raises(InfeasibleError, match="fewer or smaller adapters"):
        setting(adapters={"count": 1000, "rank": 64, "memory": 90})


def test_adapters_in_the_memory_of_kv_leave_more_of_it_than_one_for_each_slot():
    """16 sequences at most, of 40 adapters: those in use take blocks, and requests are conserved."""
    options = {"max_sequences": 16, "prefix_caching": False, "kv_blocks": 600}
    keys = {"count": 40, "rank": 64}
    apart = setting(requests=200, options=options, adapters={**keys, "memory": 0.1})
    shared = setting(requests=200, options=options, adapters={**keys, "memory": "shared"})
    assert shared.pools[0].costs.kv_blocks == 600 > apart.pools[0].costs.kv_blocks
    assert shared.pools[0].most_tokens < 600 * 16
    result = serve(shared)
    assert len(result.records) == 200
    assert result.fleet.members[0].replica.batchers[0].kv.free == 600


def test_kv_with_a_prefix_cache_cannot_hold_adapters():
    with pytest.raises(InputError, match=r"prefix_caching: false"):
        setting(adapters={"count": 2, "rank": 8, "memory": "shared"})


def test_models_that_share_blocks_hold_and_read_their_own():
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 5,
            "arrivals": {"kind": "burst"},
            "input": 9,
            "output": 9,
        },
        "deployment": {"options": {"max_context": 1024, "max_sequences": 8}},
    }

    def pool(**adapters):
        held = {"adapters": {"count": 4, "rank": 1, "kernel": "blocks", **adapters}} if adapters else {}
        asked = {**data, "deployment": {**data["deployment"], **held}}
        return make_serving(asked, "test", Path()).pools[0]

    plain, most, half = pool(), pool(options={"shared": 0.75}), pool(options={"shared": 0.5})
    assert half.costs.adapters.bytes == pytest.approx(0.5 * plain.costs.weight_bytes)
    assert half.costs.adapters.bytes == pytest.approx(2 * most.costs.adapters.bytes)
    assert plain.costs.kv_blocks > most.costs.kv_blocks > half.costs.kv_blocks
    # One model in the batch costs nothing; of two, each reads its own blocks.
    one = pool(popularity="identical", options={"shared": 0.5}).costs.steps
    assert one.step((), 8, 800) == plain.costs.steps.step((), 8, 800)
    assert half.costs.steps.step((), 8, 800) > most.costs.steps.step((), 8, 800) > one.step((), 8, 800)
