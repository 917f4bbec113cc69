"""Conservation guards: a run that loses blocks, slots, tokens or time is stopped where it does."""

import pytest

from simulator.serving.replica.guards import ConservationError
from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request


def lose_block(replica, _sequence):
    replica.kv.free -= 1


def lose_slot(replica, _sequence):
    replica.batcher.running += 1


def lose_token(replica, _sequence):
    replica.batcher.kv_tokens -= 1


def turn_back(replica, _sequence):
    replica.next_s = 0.001


LOSSES = {
    "shared and private blocks": lose_block,
    "running sequences": lose_slot,
    "KV tokens of decodes": lose_token,
    "time of the step": turn_back,
}


@pytest.mark.parametrize("law", LOSSES)
def test_a_loss_is_named_where_it_happens(law, run_replica):
    replica = run_replica([Request(0, 0.0, 100, 5)]).replica
    first = Sequence(Request(1, 10.0, 700, 50), 10.0)
    replica.submit(first, 10.0)
    replica.advance(10.2)
    LOSSES[law](replica, first)
    with pytest.raises(ConservationError, match=law):
        replica.advance(float("inf"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kv_blocks": 400},
        {"kv_blocks": 400, "preemption": "swap"},
        {"kv_blocks": 400, "asynchronous": False},
        {"scheduler": "prefill-first"},
        {"preemption": "none"},
    ],
)
@pytest.mark.parametrize("stretches", [True, False])
def test_guards_change_no_time(options, stretches, run_replica, requests, monkeypatch):
    work = requests(60, rate=20.0)
    guarded_times = run_replica(work, stretches, **options).times
    monkeypatch.setattr("tests.simulator.serving.conftest.guard", lambda loop: loop)
    assert (run_replica(work, stretches, **options).times == guarded_times).all()
