"""Prompts some decode steps apart, admitted by the peak of KV; adapters in the same memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.serving.replica.kv.unified import UnifiedBlocks
from simulator.serving.replica.schedulers.spaced_prefill import peak
from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request
from tests.simulator.serving.conftest import Run, make_requests

STEPS = 7
"""Decode steps before the peak is asked for."""


def running(held: int, left: int) -> Sequence:
    """A decoding sequence with so many KV tokens and output tokens to come."""
    one = Sequence(Request(0, 0.0, held, left + 1), 0.0)
    one.join_kv, one.join_step, one.end_step = held, STEPS, STEPS + left
    return one


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), max_size=6),
    st.tuples(st.integers(1, 50), st.integers(1, 30)),
)
@settings(deadline=None)
def test_the_peak_is_that_of_every_step(others, coming):
    prompt, output = coming
    every = [*others, (prompt, output - 1)]
    counted = [
        sum(held + step for held, left in every if step <= left)
        for step in range(max(left for _, left in every) + 1)
    ]
    waiting = Sequence(Request(1, 0.0, prompt, output), 0.0)
    assert peak(STEPS, [running(*one) for one in others], waiting) == max(counted)


def test_prompts_are_at_least_so_many_decode_steps_apart():
    """Each decode step takes 10 ms and more, so that first tokens come in groups that are 200 ms apart."""
    options = {"scheduler": "spaced-prefill", "scheduler_options": {"every": 20}, "asynchronous": False}
    run = Run(make_requests(200, rate=30.0, most=100), max_sequences=400, **options)
    firsts = np.unique([one.first_s for one in run.done])
    assert len(firsts) < len(run.done)
    assert np.diff(firsts).min() > 20 * 0.01


@pytest.mark.slow
def test_nothing_is_preempted_however_few_blocks_there_are():
    options = {"scheduler": "spaced-prefill", "asynchronous": False, "kv_blocks": 640, "block_tokens": 1}
    run = Run(make_requests(200, rate=30.0, most=300), **options)
    assert run.replica.batcher.preemptions == 0
    assert len(run.done) == 200


def of_adapter(adapter: int) -> Sequence:
    return Sequence(Request(adapter, 0.0, 10, 10, adapter=adapter), 0.0)


def test_an_adapter_takes_blocks_while_a_sequence_uses_it():
    kv = UnifiedBlocks(total=100, block_tokens=1, keeps_freed=False, adapter=30)
    first, again, other = of_adapter(1), of_adapter(1), of_adapter(2)
    assert kv.beside((first, again, other)) == 60
    assert kv.hold(first, 10) and kv.free == 60
    assert kv.hold(again, 10) and kv.free == 50
    assert kv.hold(other, 10) and kv.free == 10
    assert not kv.hold(of_adapter(3), 1)
    for one, free in ((first, 20), (again, 60), (other, 100)):
        kv.release(one, 10)
        assert kv.free == free
