"""The slowest of many devices, against samples."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.slowest_rank import JITTER, SPREAD, slowest_of


def test_one_device_waits_for_none():
    assert slowest_of(1) == 1.0


@pytest.mark.parametrize("devices", [2, 8, 64, 1024])
def test_the_lead_bounds_that_of_sampled_devices(devices):
    """Speeds and delays have their extremes on different devices: at most the sum, at least the larger."""
    random = np.random.default_rng(7)
    shape = 4000, devices
    speeds, delays = SPREAD * random.standard_normal(shape), JITTER * (random.exponential(size=shape) - 1)
    alone = [float(part.max(axis=1).mean()) for part in (speeds, delays)]
    both = float((speeds + delays).max(axis=1).mean())
    assert slowest_of(devices) - 1 == pytest.approx(sum(alone), rel=0.1)
    assert max(alone) < both <= slowest_of(devices) - 1


def test_delays_keep_growing_with_the_log_of_the_ranks():
    doublings = [slowest_of(2 * n) - slowest_of(n) for n in (1024, 2**20)]
    assert doublings[0] > doublings[1] > JITTER * np.log(2)
