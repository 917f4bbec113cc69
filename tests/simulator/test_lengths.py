"""Means of drawn lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.lengths.lognormal import Lognormal, median_of_mean


@given(st.floats(10, 1000), st.floats(0, 2), st.integers(16, 4000))
def test_a_mean_is_that_of_the_lengths_that_are_drawn(median, sigma, most):
    lengths = Lognormal(median=median, sigma=sigma, most=most)
    drawn = lengths.draw(np.random.default_rng(1), 20_000)
    noise = drawn.std() / np.sqrt(len(drawn))
    assert lengths.mean() == pytest.approx(drawn.mean(), abs=5 * noise + 0.6)


@given(st.floats(1, 900), st.floats(0.1, 2))
def test_a_median_gives_the_mean_that_is_asked_for(mean, sigma):
    median = median_of_mean(mean, sigma, 1024)
    assert Lognormal(median=max(median, 0.1), sigma=sigma, most=1024).mean() == pytest.approx(mean, rel=0.02)
