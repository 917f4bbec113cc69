"""Eviction: a sequence leaves a replica with its KV and tokens, and another one continues it."""

from heapq import heappop, heappush
from itertools import count

import numpy as np
import pytest

from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.base import ReplicaParts
from simulator.serving.replica.guards import guard
from simulator.serving.replica.kv import PagedBlocks
from simulator.serving.replica.lockstep import LockstepReplica
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.pipeline import PipelinedReplica
from simulator.serving.replica.replica import Replica
from simulator.serving.replica.schedulers import make_scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request
from tests.simulator.serving.conftest import STEPS
from tests.simulator.serving.roofline import RooflineSteps

FORMS = ("one rank", "lockstep", "stages")
STAGED = RooflineSteps(stages=2, fixed_s=0.01, token_s=2e-5, kv_s=3e-8, pair_s=1e-10, busy_watts=500.0)
MOVE_S = 0.02
"""Seconds of a transfer."""


def make_replica(form, done, stretches=True, **options):
    given = {"token_budget": 512, "max_sequences": 16, "kv_blocks": 2000, "ingest_s": 0.0, **options}
    options = EngineOptions(**given)
    kvs = [PagedBlocks(options.kv_blocks, options.block_tokens, options.prefix_caching) for _ in range(2)]
    scheduler = make_scheduler(options.scheduler, options.scheduler_options)
    steps = STAGED if form == "stages" else STEPS
    rest = (steps, Meter(steps, options.kv_blocks), lambda one, now: done.append((one, now)), stretches)
    if form == "lockstep":
        return guard(LockstepReplica(ReplicaParts(options, scheduler, kvs, *rest)))
    kind = PipelinedReplica if form == "stages" else Replica
    return guard(kind(ReplicaParts(options, scheduler, kvs[:1], *rest)))


def run(form, moves, stretches=True, **options):
    """Requests on one replica; at each time of ``moves`` one of its sequences goes to another replica."""
    random, serial, done, moved = np.random.default_rng(5), count(), [], []
    first, second = (make_replica(form, done, stretches, **options) for _ in range(2))
    events = []
    for index, time in enumerate(np.cumsum(random.exponential(0.2, 80)).tolist()):
        request = Request(index, time, int(random.integers(1, 1500)), int(random.integers(1, 120)))
        heappush(events, (time, next(serial), first, Sequence(request, time)))
    for time in moves:
        heappush(events, (float(time), next(serial), first, None))
    while events:
        now, _, replica, sequence = heappop(events)
        replica.advance(now)
        if sequence is not None:
            replica.submit(sequence, now)
            continue
        candidates = sorted(replica.sequences(), key=lambda one: one.request.serial)
        if not candidates:
            continue
        evicted = replica.evict(candidates[len(candidates) // 2], now)
        if evicted is not None:
            moved.append(evicted)
            heappush(events, (evicted.ready_s + MOVE_S, next(serial), second, evicted.sequence))
    first.advance(float("inf"))
    second.advance(float("inf"))
    return done, moved, (first, second)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "options",
    [
        {"asynchronous": True},
        {"asynchronous": False},
        {"asynchronous": False, "preemption": "none"},
        {"kv_blocks": 260, "preemption": "swap"},
        {"scheduler": "prefill-first"},
    ],
    ids=str,
)
def test_evicted_sequences_end_elsewhere_and_nothing_is_lost(form, options):
    done, moved, replicas = run(form, np.arange(0.5, 20.0, 0.31), **options)
    assert len(moved) > 20
    assert sorted(one.request.serial for one, _ in done) == list(range(80))
    assert all(one.generated == one.output and one.last_s == now for one, now in done)
    for replica in replicas:
        assert all(batcher.kv.free == batcher.kv.total for batcher in replica.batchers)
        assert replica.load == 0 and replica.next_s == float("inf")


@pytest.mark.parametrize("form", FORMS)
def test_an_eviction_inside_of_a_stretch_is_one_between_its_steps(form):
    moves = np.arange(0.5, 20.0, 0.31)
    (steps, _, _), (stretches, _, _) = (run(form, moves, stretches=on) for on in (False, True))
    ends = [{one.request.serial: now for one, now in done} for done in (steps, stretches)]
    assert max(abs(ends[0][serial] - ends[1][serial]) for serial in range(80)) < 1e-9


def test_a_decoding_sequence_brings_its_kv_and_computes_one_token_where_it_arrives():
    done = []
    first, second = (make_replica("one rank", done, asynchronous=False) for _ in range(2))
    sequence = Sequence(Request(0, 0.0, 400, 100), 0.0)
    first.submit(sequence, 0.0)
    first.advance(0.5)
    end = first.next_s
    evicted = first.evict(sequence, 0.5)
    assert evicted is not None and 0.5 <= evicted.ready_s < 0.5 + STEPS.step((), 1, 500) < end
    assert evicted.tokens == sequence.prompt + sequence.generated - 1 == sequence.target - 1
    tokens = sequence.generated
    second.advance(evicted.ready_s)
    second.submit(sequence, evicted.ready_s)
    second.advance(evicted.ready_s + 1e-6)
    assert second.next_s == pytest.approx(evicted.ready_s + STEPS.step([(1, evicted.tokens)], 0, 0))
    second.advance(float("inf"))
    assert [one for one, _ in done] == [sequence]
    assert second.meter.totals.output_tokens == 100 - tokens


def test_a_sequence_whose_last_token_is_planned_stays():
    done = []
    replica = make_replica("one rank", done, asynchronous=False)
    sequence = Sequence(Request(0, 0.0, 10, 1), 0.0)
    replica.submit(sequence, 0.0)
    replica.advance(1e-6)
    assert replica.evict(sequence, 1e-6) is None
    replica.advance(float("inf"))
    assert done and replica.evict(sequence, 1.0) is None
