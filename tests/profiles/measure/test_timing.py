"""The host's timer: what it cannot be faster than, and medians over repeats."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.measure.timing import REPEATS, HostTimer, summary


def test_a_sleep_is_never_shorter():
    timing = HostTimer().time([lambda: time.sleep(0.002)], 0.004)
    assert timing.seconds >= 0.002
    assert timing.spread >= 0


def test_the_rotation_is_gone_through_evenly():
    counts = [0, 0, 0]

    def call(index):
        counts[index] += 1

    HostTimer().time([lambda i=i: call(i) for i in range(3)], 0.001)
    assert max(counts) - min(counts) <= 1
    assert sum(counts) > REPEATS


def test_the_end_of_the_work_is_waited_for():
    timing = HostTimer(lambda: time.sleep(0.003)).time([lambda: None], 0.0)
    assert timing.seconds * 1e6 > 0


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9))
def test_summary_is_the_median(seconds):
    timing = summary(seconds)
    assert timing.seconds == pytest.approx(np.median(seconds))
    assert timing.spread >= 0
    assert summary([2 * s for s in seconds]).spread == pytest.approx(timing.spread)
