"""Step times of decode batches whose size varies."""

import numpy as np
import pytest

from simulator.serving.steps.batch_spread import SHARED, averaged

STAIR = np.where(np.arange(600) < 5, 40.0, np.where(np.arange(600) < 9, 39.0, 40.0 + 0.01 * np.arange(600)))
STAIR[1:4] = 36.0, 37.0, 38.5


@pytest.mark.parametrize("shared", SHARED)
def test_a_straight_line_is_its_own_average(shared):
    """The mean of a line is the line at the mean, up to the ends of the batch."""
    line = 5.0 + 0.25 * np.arange(600.0)
    assert averaged(line, 256, shared) == pytest.approx(line, rel=1e-9)


def test_average_is_that_of_poisson_numbers():
    """Beside a request stand as many sequences as independent arrivals leave there."""
    random = np.random.default_rng(0)
    for mean in (2, 5, 40, 200):
        batches = 1 + random.poisson(mean - 1.0, 200_000)
        assert averaged(STAIR, 256, 1)[mean] == pytest.approx(STAIR[batches].mean(), rel=3e-3)


def test_a_dip_of_the_stair_leaves_no_dip_in_the_average():
    """A product of 5 rows may be faster than one of 4: a higher mean still takes longer (law 34)."""
    assert (np.diff(STAIR[:10]) < 0).any()
    assert (np.diff(averaged(STAIR, 256, 1)[1:256]) > -1e-9).all()


def test_balanced_batches_vary_less():
    """Where arrivals go to the batch that is smallest, the average nears the time of the mean."""
    off = [abs(averaged(STAIR, 256, shared)[4] - STAIR[4]) for shared in SHARED]
    assert off == sorted(off, reverse=True)
