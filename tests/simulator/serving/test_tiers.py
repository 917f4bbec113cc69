"""Tiers of KV: what they hold, what reading costs, and that no token or block is lost."""

import numpy as np
import pytest

from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.base import ReplicaParts
from simulator.serving.replica.kv import TieredBlocks, TierStore
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.replica import Replica
from simulator.serving.replica.schedulers import make_scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request
from tests.simulator.serving.conftest import STEPS, conversations

SPAN, BLOCKS = 64, 64


def one_after_the_other(requests, token_s, recompute=0.0, room=1000):
    """Seconds to first token of requests that find the replica idle; 1,024 tokens fit device memory."""
    options = EngineOptions(token_budget=4096, max_sequences=8, kv_blocks=BLOCKS, asynchronous=False)
    kv = TieredBlocks(BLOCKS, options.block_tokens, SPAN, recompute)
    kv.use([TierStore(room, token_s)])
    done = []
    rest = (STEPS, Meter(STEPS, BLOCKS), lambda one, now: done.append(one))
    replica = Replica(ReplicaParts(options, make_scheduler("chunked", {}), [kv], *rest))
    for index, (prompt, prefix) in enumerate(requests):
        now = 100.0 * index
        replica.advance(now)
        replica.submit(Sequence(Request(index, now, prompt, 2, prefix), now), now)
    replica.advance(float("inf"))
    assert kv.free == kv.total
    return np.array([one.first_s - one.queued_s for one in done]), [one.cached for one in done]


FIRST, SECOND = tuple(range(14)), tuple(range(100, 114))
RETURNS = [(900, FIRST), (900, SECOND), (900, FIRST)]


@pytest.mark.parametrize("token_s", [1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("recompute", [0.0, 0.15, 0.5])
def test_a_step_lasts_as_long_as_reading_or_computing(token_s, recompute):
    times, cached = one_after_the_other(RETURNS, token_s, recompute)
    held = cached[2]
    # Tails were evicted first, heads stayed: at least one unit came from the tier.
    assert 0 < held <= 14 * SPAN
    computing = STEPS.step([(900 - held, held)], 0, 0)
    assert times[2] >= computing - 1e-12
    if token_s <= 1e-7:
        assert times[2] == pytest.approx(computing)
    else:
        assert times[2] <= max(computing, 14 * SPAN * token_s) + 1e-12


def test_a_small_tier_keeps_the_last_units_only():
    full = one_after_the_other(RETURNS, 1e-7)[1][2]
    assert one_after_the_other(RETURNS, 1e-7, room=1)[1][2] < full


def test_computing_all_again_is_no_tier_at_all():
    with_tier = one_after_the_other(RETURNS, 1e-3, recompute=1.0)
    without = one_after_the_other(RETURNS, 1e-3, room=0)
    assert with_tier[0].tolist() == without[0].tolist()


@pytest.mark.parametrize("place", ["host", "nvme", "remote"])
def test_tiers_raise_the_hit_rate_and_lose_nothing(place):
    plain = conversations(replicas=2)
    tiered = conversations(replicas=2, tiers=[{"place": place, "gigabytes": 100}])
    assert tiered.metrics.hit_rate > plain.metrics.hit_rate + 0.1
    assert len(tiered.records) == 200
    for member in tiered.fleet.members:
        assert member.replica.kv.free == member.replica.kv.total


def test_a_shared_tier_serves_all_replicas():
    """Round robin moves conversations between replicas: only a shared tier has what another one computed."""
    own = conversations(replicas=4, tiers=[{"place": "host", "gigabytes": 100}])
    shared = conversations(replicas=4, tiers=[{"place": "remote", "gigabytes": 100}])
    assert shared.metrics.hit_rate > own.metrics.hit_rate
