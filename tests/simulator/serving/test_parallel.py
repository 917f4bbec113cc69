"""Pipelines and lock-step ranks: closed form against steps, conservation, and bounds."""

import numpy as np
import pytest

from simulator.serving.question.options import EngineOptions
from simulator.serving.question.speculation import Speculation
from simulator.serving.replica.base import ReplicaParts
from simulator.serving.replica.kv import PagedBlocks
from simulator.serving.replica.lockstep import LockstepReplica
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.pipeline import PipelinedReplica
from simulator.serving.replica.replica import Replica
from simulator.serving.replica.schedulers import make_scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.speculation import Drafts, SpeculativeSteps
from simulator.serving.workload.request import Request
from tests.simulator.serving.conftest import make_requests
from tests.simulator.serving.roofline import RooflineSteps


def steps(stages: int = 1) -> RooflineSteps:
    return RooflineSteps(stages=stages, fixed_s=0.01, token_s=2e-5, kv_s=3e-8, pair_s=1e-10, busy_watts=500.0)


def run(requests, stages=1, ranks=1, stretches=True, kv_blocks=100_000, **given):
    options = EngineOptions(**{"token_budget": 512, "max_sequences": 32, "asynchronous": False, **given})
    done = []
    times = steps(stages)
    rest = (times, Meter(times, kv_blocks), lambda one, now: done.append(one), stretches)
    scheduler = make_scheduler(options.scheduler, {})
    kvs = [PagedBlocks(kv_blocks, options.block_tokens, True) for _ in range(ranks)]
    kind = LockstepReplica if ranks > 1 else PipelinedReplica
    replica = kind(ReplicaParts(options, scheduler, kvs, *rest))
    for request in requests:
        replica.advance(request.arrival_s)
        replica.submit(Sequence(request, request.arrival_s), request.arrival_s)
    replica.advance(float("inf"))
    assert len(done) == len(requests)
    assert all(kv.free == kv.total for kv in kvs)
    assert replica.running == 0
    done.sort(key=lambda one: one.request.serial)
    return np.array([[one.first_s, one.last_s] for one in done]), replica


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 2, 3, 8])
@pytest.mark.parametrize("rate", [0.5, 3.0, 30.0])
@pytest.mark.parametrize("kv_blocks", [100_000, 600])
def test_rounds_in_closed_form_are_the_steps(stages, rate, kv_blocks):
    requests = make_requests(120, rate=rate)
    found = [run(requests, stages, stretches=on, kv_blocks=kv_blocks)[0] for on in (False, True)]
    assert np.abs(found[0] - found[1]).max() < 1e-9


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("ranks", [2, 4])
def test_lockstep_stretches_are_the_steps(asynchronous, ranks):
    requests = make_requests(120, rate=3.0)
    found = [run(requests, ranks=ranks, stretches=on, asynchronous=asynchronous)[0] for on in (False, True)]
    # The longest rank may change within a stretch, over which the time is taken as linear.
    assert np.abs(found[0] - found[1]).max() < 1e-3


def test_a_single_sequence_gains_nothing_from_stages():
    requests = [Request(0, 0.0, 100, 50)]
    assert run(requests, stages=4)[0] == pytest.approx(run(requests, stages=1)[0])


def test_stages_multiply_throughput_when_all_are_busy():
    requests = [Request(index, 0.0, 16, 200) for index in range(32)]
    one, four = run(requests, 1)[0].max(), run(requests, 4, token_budget=64, max_sequences=32)[0].max()
    # Each of four micro batches of 8 takes nearly as long as one of 32: reading weights dominates.
    assert four > 0.8 * one
    alone = run(requests[:8], 1)[0].max()
    assert four == pytest.approx(alone, rel=0.15)


def test_lockstep_ranks_wait_for_the_longest():
    long, short = Request(0, 0.0, 2000, 50), Request(1, 0.0, 10, 50)
    together, _ = run([long, short], ranks=2)
    assert together[1, 0] > run([short], ranks=2)[0][0, 0]


@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.9, [1, 0, 2, 1]])
def test_a_step_yields_the_mean_of_its_acceptance(acceptance):
    speculation = Speculation(draft="x", tokens=3, acceptance=acceptance)
    drafts = Drafts(speculation, [1])
    needed = np.mean([drafts.steps(400, 1) for _ in range(300)])
    # The last step may yield more than is left.
    assert needed == pytest.approx(400 / speculation.mean(), rel=0.02)
    if isinstance(acceptance, float):
        assert speculation.mean() == pytest.approx((1 - acceptance**4) / (1 - acceptance))


def test_speculation_in_closed_form_is_the_steps():
    speculation = Speculation(draft="x", tokens=3, acceptance=0.7)
    found = []
    for stretches in (False, True):
        options = EngineOptions(token_budget=512, max_sequences=32, preemption="none", kv_blocks=4000)
        times = SpeculativeSteps(steps(), steps(), speculation)
        done = []
        kv = PagedBlocks(4000, options.block_tokens, True)
        rest = (times, Meter(times, 4000), lambda one, now, done=done: done.append(one), stretches)
        replica = Replica(ReplicaParts(options, make_scheduler("chunked", {}), [kv], *rest))
        replica.batcher.drafts = Drafts(speculation, [5])
        for request in make_requests(100, rate=3.0):
            replica.advance(request.arrival_s)
            replica.submit(Sequence(request, request.arrival_s), request.arrival_s)
        replica.advance(float("inf"))
        assert kv.free == kv.total
        assert replica.batcher.ages == 0
        found.append(
            np.array([[one.first_s, one.last_s] for one in sorted(done, key=lambda x: x.request.serial)])
        )
    # KV tokens of a step are rounded down to whole ones.
    assert np.abs(found[0] - found[1]).max() < 1e-4
