"""Routers as engines' projects ship them: affinity until a replica is saturated, and cost in tokens."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.routers.base import Targets
from simulator.serving.routers.dynamo_kv import DynamoKv
from simulator.serving.routers.llm_d import StickyUntilSaturated
from simulator.serving.routers.record import SentPrefixes
from simulator.serving.routers.scored import Scored
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.workload.request import Request

TABLES = SharedTables()


def run(router, prompts=24, requests=300, rate=12, **options):
    """A fleet of three replicas whose memory holds a third of the system prompts each."""
    scenario = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": 400,
            "output": 20,
            "prefix": {"groups": prompts, "tokens": 4096},
        },
        "deployment": {
            "replicas": 3,
            "router": router,
            "router_options": options,
            "options": {"kv_blocks": 3600},
        },
    }
    result = serve(make_serving(scenario, "test", Path(), TABLES))
    return result.to_dict(), result.records.columns()


def largest_share(columns):
    """Share of requests on the replica that served most."""
    return np.bincount(columns["replica"]).max() / len(columns["replica"])


@pytest.mark.parametrize("router", ["llm-d", "dynamo-kv"])
def test_prompts_return_to_the_replica_that_caches_them(router):
    blind, _ = run("round-robin")
    found, columns = run(router)
    assert found["hit_rate"] > blind["hit_rate"] + 0.1
    assert largest_share(columns) < 0.5


def test_a_prompt_counts_until_the_step_that_computes_it_ends():
    _, columns = run("llm-d", requests=3, rate=200)
    assert columns["arrival_s"].max() < columns["first_s"].min()
    assert sorted(columns["replica"]) == [0, 1, 2]


@dataclass
class Seen:
    """What a router sees of a replica."""

    pending: int
    held: int
    used_tokens: int = 0

    def cached(self, request):
        return min(self.held, request.prompt)


@dataclass
class Numbered:
    """An idle replica that a router knows by its number."""

    index: int
    queue: int = 0
    kv_use: float = 0.0


@dataclass
class Holding:
    """An idle replica whose memory holds part of every prompt."""

    index: int
    held: int
    pending: int = 0

    def cached(self, request):
        return min(self.held, request.prompt)


def picks(router, *replicas, draws=40):
    """Replicas that a router picks for a prompt of 1,000 tokens."""
    random = np.random.default_rng(0)
    request, targets = Request(0, 0.0, 1000, 10), Targets(replicas)
    return {router.pick(request, targets, turn, random) for turn in range(draws)}


def test_affinity_holds_until_the_prompt_tokens_in_flight_would_delay_too_long():
    router = StickyUntilSaturated(index="exact", penalty=2.0, prefill_rate=10_000.0)
    idle = Seen(0, 0)
    assert picks(router, Seen(20_000, 900), idle) == {0}
    assert picks(router, Seen(20_001, 900), idle) == {1}
    assert picks(router, Seen(20_001, 799), idle) == {1}
    assert picks(router.model_copy(update={"penalty": 0.0}), Seen(10**6, 900), idle) == {0}


def test_after_affinity_ends_cached_tokens_still_count_as_work_saved():
    router = StickyUntilSaturated(index="exact", penalty=0.01, prefill_rate=10_000.0)
    assert picks(router, Seen(850, 900), Seen(0, 0)) == {0}
    assert picks(router, Seen(950, 900), Seen(0, 0)) == {1}


def test_the_least_loaded_of_those_that_cache_a_prompt_takes_it():
    router = StickyUntilSaturated(index="exact")
    assert picks(router, Seen(500, 900), Seen(400, 900), Seen(0, 100)) == {1}
    assert picks(router, Seen(0, 0), Seen(0, 0)) == {0, 1}


def sends(record, *replicas):
    """Replicas and what their router has sent them."""
    return Targets(replicas, record)


def prompt(*ids, tokens=1000):
    return Request(0, 0.0, tokens, 10, ids)


def test_a_record_holds_what_was_sent_until_newer_blocks_take_its_room():
    record = SentPrefixes(span=64, blocks=6)
    record.note(prompt(1, 2, 3), 0)
    record.note(prompt(1, 2, 4), 1)
    assert record.tokens(prompt(1, 2, 3, 5), (0, 1, 2)).tolist() == [192, 128, 0]
    assert record.tokens(prompt(1, 2, 3, tokens=150), (0,)).tolist() == [150]
    record.note(prompt(6, 7, 8, 9), 0)
    assert record.tokens(prompt(1, 2, 3), (0, 1)).tolist() == [0, 128]
    record.forget(1)
    assert record.tokens(prompt(1, 2, 3), (0, 1)).tolist() == [0, 0]


def test_a_record_counts_blocks_of_64_tokens_or_of_one_id():
    small, large = SentPrefixes(span=16, blocks=4), SentPrefixes(span=512, blocks=16)
    assert (small.unit_tokens, large.unit_tokens) == (64, 512)
    for record in (small, large):
        record.note(prompt(*range(6)), 0)
    assert small.tokens(prompt(0, 1, 2, 3, 9), (0,)).tolist() == [64]
    assert large.tokens(prompt(0, 1, tokens=4000), (0,)).tolist() == [0]
    assert large.tokens(prompt(*range(6), tokens=4000), (0,)).tolist() == [0]


def test_replicas_take_cold_prompts_in_turn():
    record = SentPrefixes(64, 100)
    targets = sends(record, *map(Numbered, range(4)))
    router = Scored(prefix=3, queue=2, kv=2, cold=2, index="sent")
    random, picked = np.random.default_rng(0), []
    for turn in range(12):
        request = prompt(turn, turn + 100)
        picked.append(router.pick(request, targets, turn, random))
        record.note(request, picked[-1])
    assert all(sorted(picked[turn : turn + 4]) == [0, 1, 2, 3] for turn in (0, 4, 8))
    assert router.pick(prompt(5, 105), targets, 12, random) == picked[5]


def test_a_prompt_counts_as_cached_where_it_was_sent_though_the_replica_has_evicted_it():
    record, request = SentPrefixes(64, 100), prompt(*range(15))
    record.note(request, 1)
    targets, random = sends(record, Holding(0, 960), Holding(1, 0)), np.random.default_rng(0)
    assert StickyUntilSaturated().pick(request, targets, 0, random) == 1
    assert StickyUntilSaturated(index="exact").pick(request, targets, 0, random) == 0


def test_cost_adds_prompt_tokens_and_kv_in_use():
    assert picks(DynamoKv(), Seen(0, 900, 2000), Seen(0, 0, 1099)) == {1}
    assert picks(DynamoKv(), Seen(0, 900, 2000), Seen(0, 0, 1101)) == {0}
    assert picks(DynamoKv(prefill=3.0), Seen(0, 900, 2000), Seen(0, 0, 0)) == {0}


def test_a_temperature_draws_the_dearer_replica_too():
    replicas = Seen(0, 900), Seen(0, 0)
    assert picks(DynamoKv(), *replicas) == {0}
    assert picks(DynamoKv(temperature=1.0), *replicas) == {0, 1}


def test_without_credit_the_cost_balances_load_alone():
    credited, _ = run("dynamo-kv")
    balanced, _ = run("dynamo-kv", credit=0)
    assert balanced["hit_rate"] < credited["hit_rate"]


@pytest.mark.parametrize(
    ("router", "options"),
    [("llm-d", {"affinity": 1.2}), ("llm-d", {"penalty": -1}), ("dynamo-kv", {"temperature": -0.5})],
)
def test_parameters_out_of_range_are_refused(router, options):
    with pytest.raises(InputError, match=next(iter(options))):
        run(router, **options)
