"""The host's timer: what it cannot be faster than, and medians over repeats."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.measure.timing import REPEATS, DeviceTimer, HostTimer, summary


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


class FakeCuda:
    """torch.cuda with a clock that each call of a kernel moves; what is captured runs when it is replayed."""

    def __init__(self):
        self.now, self.capturing, self.replays = 0.0, None, 0
        self.cuda = self

    def kernel(self, seconds):
        if self.capturing is None:
            self.now += seconds
        else:
            self.capturing.append(seconds)

    def Stream(self, device):
        return SimpleNamespace(synchronize=lambda: None)

    def Event(self, enable_timing):
        assert enable_timing
        event = SimpleNamespace(synchronize=lambda: None)
        event.record = lambda stream: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: (end.at - event.at) * 1e3
        return event

    def CUDAGraph(self):
        recorded = []

        def replay():
            self.replays += 1
            self.now += sum(recorded)

        return SimpleNamespace(recorded=recorded, replay=replay, reset=recorded.clear)

    @contextmanager
    def graph(self, graph, stream):
        self.capturing = graph.recorded
        yield
        self.capturing = None


@pytest.mark.parametrize("method", ["graph", "stream"])
@pytest.mark.parametrize("seconds", [2e-6, 5e-3])
def test_the_device_times_one_call_of_a_rotation(method, seconds):
    fake = FakeCuda()
    timer = DeviceTimer(fake, 0)
    timing = timer.time([lambda: fake.kernel(seconds)] * 3, 0.02, method)
    assert timing.seconds == pytest.approx(seconds)
    assert timing.spread == pytest.approx(0, abs=1e-9)
    assert (fake.replays > 0) == (method == "graph")
    # Five repeats, each long enough.
    assert fake.now >= REPEATS * 0.02
