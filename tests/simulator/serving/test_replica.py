"""One replica: counters against lists, closed form against steps, conservation, and queueing theory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.serving.replica.schedulers import schedulers
from simulator.serving.workload.request import Request
from tests.simulator.serving.conftest import STEPS, Run, make_requests


class ListEngine:
    """Chunked scheduling at the end of each step with a list of sequences: the plain way, for comparison."""

    def __init__(self, requests, budget, slots):
        queue, running, now, self.first, self.last = list(requests), [], 0.0, {}, {}
        while queue or running:
            if not running and queue[0].arrival_s > now:
                now = queue[0].arrival_s
            left, chunks, decoding = budget, [], []
            for one in running:
                if one["todo"] == 0:
                    decoding.append(one)
            left -= len(decoding)
            for one in running:
                if one["todo"] and left > 0:
                    chunk = min(left, one["todo"])
                    chunks.append((one, chunk))
                    left -= chunk
            while queue and queue[0].arrival_s <= now and left > 0 and len(running) < slots:
                request = queue.pop(0)
                one = {"request": request, "todo": request.prompt, "kv": 0, "made": 0}
                running.append(one)
                chunk = min(left, request.prompt)
                chunks.append((one, chunk))
                left -= chunk
            kv = sum(one["kv"] + 1 for one in decoding)
            now += STEPS.step([(chunk, one["kv"]) for one, chunk in chunks], len(decoding), kv)
            for one in decoding:
                one["kv"] += 1
                one["made"] += 1
            for one, chunk in chunks:
                one["kv"] += chunk
                one["todo"] -= chunk
                if one["todo"] == 0:
                    one["made"] = 1
                    self.first[one["request"].serial] = now
            for one in [one for one in running if one["made"] == one["request"].output]:
                running.remove(one)
                self.last[one["request"].serial] = now


@pytest.mark.parametrize("rate", [0.5, 3.0, 30.0])
def test_counters_are_bit_equal_to_lists(rate):
    requests = make_requests(150, rate=rate)
    plain = ListEngine(requests, 512, 32)
    run = Run(requests, stretches=False, asynchronous=False)
    assert [one.first_s for one in run.done] == [plain.first[one.request.serial] for one in run.done]
    assert [one.last_s for one in run.done] == [plain.last[one.request.serial] for one in run.done]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", list(schedulers))
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kv_blocks", [100_000, 400])
def test_closed_form_stretches_are_the_steps(scheduler, asynchronous, kv_blocks):
    options = {"scheduler": scheduler, "asynchronous": asynchronous, "kv_blocks": kv_blocks}
    requests = make_requests(60, rate=2.0)
    steps, stretches = (Run(requests, stretches=on, **options) for on in (False, True))
    assert np.abs(steps.times - stretches.times).max() < 1e-9


@pytest.mark.slow
@given(
    scheduler=st.sampled_from(sorted(schedulers)),
    asynchronous=st.booleans(),
    preemption=st.sampled_from(["recompute", "swap", "none"]),
    kv_blocks=st.integers(220, 1000),
    slots=st.integers(1, 40),
    budget=st.sampled_from([64, 512, 4096]),
    rate=st.sampled_from([0.3, 3.0, 100.0]),
    span=st.sampled_from([0, 16, 64]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_every_token_is_made_once_and_every_block_returns(
    scheduler, asynchronous, preemption, kv_blocks, slots, budget, rate, span, seed
):
    requests = make_requests(40, seed=seed, rate=rate)
    if span:
        random = np.random.default_rng(seed)
        requests = [
            one._replace(prefix=tuple(1000 * group + i for i in range(one.prompt // span)))
            for one, group in zip(requests, random.integers(0, 3, len(requests)), strict=True)
        ]
    run = Run(
        requests,
        span=span,
        scheduler=scheduler,
        asynchronous=asynchronous,
        preemption=preemption,
        kv_blocks=kv_blocks,
        max_sequences=slots,
        token_budget=max(budget, slots),
    )
    assert len(run.done) == len(requests)
    replica, batcher = run.replica, run.replica.batcher
    assert replica.kv.free == replica.kv.total
    assert (batcher.running, batcher.decodes, batcher.kv_tokens, sum(batcher.phases)) == (0, 0, 0, 0)
    if scheduler != "static":
        assert run.meter.totals.output_tokens == sum(request.output for request in requests)
    elif not batcher.preemptions:
        assert run.meter.totals.output_tokens >= sum(request.output for request in requests)
    cached = sum(one.cached for one in run.done)
    if not batcher.preemptions:
        assert run.meter.totals.prompt_tokens == sum(request.prompt for request in requests) - cached
    assert np.all(np.diff(run.times, axis=1) >= 0)
    assert all(one.scheduled_s >= one.request.arrival_s for one in run.done)


def test_the_same_requests_give_the_same_bytes():
    runs = [Run(make_requests(100)).times.tobytes() for _ in range(2)]
    assert runs[0] == runs[1]


def test_arrivals_at_the_end_of_a_step_are_seen_by_the_schedule_made_there():
    alone = Run([Request(0, 0.0, 100, 50)], asynchronous=False)
    end = alone.done[0].first_s
    run = Run([Request(0, 0.0, 100, 50), Request(1, end, 100, 1)], asynchronous=False)
    assert run.done[1].scheduled_s == pytest.approx(end, abs=1e-12)


def test_arrivals_of_one_instant_share_the_first_step():
    run = Run([Request(index, 1.0, 100, 2) for index in range(4)])
    assert {one.scheduled_s for one in run.done} == {1.0}
    assert len({one.first_s for one in run.done}) == 1


def test_scheduling_ahead_makes_an_arrival_wait_for_the_step_after_the_running_one():
    requests = [Request(0, 0.0, 1, 400), Request(1, 1.0, 10, 2)]
    waits = {}
    for ahead in (False, True):
        run = Run(requests, asynchronous=ahead)
        step = STEPS.step([], 1, 100)
        waits[ahead] = (run.done[1].first_s - 1.0) / step
    assert 1.0 <= waits[False] <= 2.05
    assert 2.0 <= waits[True] <= 3.05


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_batch_one_is_the_queue_m_d_1(load):
    service = STEPS.step([(200, 0)], 0, 0) + sum(STEPS.step([], 1, 200 + one) for one in range(1, 10))
    random = np.random.default_rng(5)
    times = np.cumsum(random.exponential(service / load, 40_000))
    run = Run(
        [Request(index, float(time), 200, 10) for index, time in enumerate(times[:6000])],
        max_sequences=1,
        asynchronous=False,
    )
    waits = np.array([one.scheduled_s - one.queued_s for one in run.done])
    lindley = [0.0]
    for gap in np.diff(times):
        lindley.append(max(lindley[-1] + service - gap, 0.0))
    assert np.abs(waits - lindley[: len(waits)]).max() < 1e-6
    # 40,000 waits are far from independent at high load, hence the tolerance.
    assert np.mean(lindley) == pytest.approx(load * service / (2 * (1 - load)), rel=0.1)


@pytest.mark.slow
def test_littles_law():
    requests = make_requests(1500, rate=4.0)
    run = Run(requests)
    times = run.times
    held = sum(one[1] for one in run.meter.totals.series.bins) / times[-1:, 2].max()
    assert run.replica.kv.free == run.replica.kv.total
    spent = np.sum(times[:, 2] - times[:, 0])
    # A sequence counts as running from the schedule of its first step to the end of its last.
    assert held * times[:, 2].max() == pytest.approx(spent, rel=0.05)


def test_a_prompt_that_is_admitted_whole_waits_until_all_its_blocks_are_free():
    # 100 blocks of 16: the first request holds 63 to 75; the second needs 75 in three chunks.
    requests = [Request(0, 0.0, 1000, 200), Request(1, 0.1, 1200, 2)]
    options = {"kv_blocks": 100, "asynchronous": False, "token_budget": 400}
    chunks, whole = (Run(requests, admits_whole=on, **options) for on in (False, True))
    assert chunks.done[1].scheduled_s < chunks.done[0].last_s
    assert whole.done[1].scheduled_s >= whole.done[0].last_s
    # What was admitted in part, and then preempted or in the way, is computed again.
    assert whole.meter.totals.prompt_tokens == 2200 <= chunks.meter.totals.prompt_tokens


def test_a_preempted_sequence_finds_its_own_blocks_behind_a_shared_prefix():
    requests = [
        Request(0, 0.0, 640, 150, prefix=(1, 2)),
        Request(1, 0.0, 640, 150, prefix=(1, 2)),
    ]
    run = Run(requests, span=64, kv_blocks=80, asynchronous=False, max_sequences=2)
    again = run.meter.totals.prompt_tokens - 2 * 640 + 128
    assert sum(one.preemptions for one in run.done) == 1
    # Without its own blocks the preempted one computes all but the prefix again.
    assert 0 < again < 640 - 128
