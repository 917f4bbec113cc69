"""Sequences beside a request where a router balances arrivals."""

import numpy as np
import pytest

from simulator.serving.steady.company import companions, met_share


def beside(batches: int, mean: float, events: int = 40_000) -> float:
    """Companions in a Markov chain: each arrival goes to the smallest batch, each sequence ends at rate 1."""
    random = np.random.default_rng(1)
    sizes, pairs, sequences = np.zeros(batches), 0.0, 0.0
    for chance, length, tie in zip(
        random.random(events), random.exponential(size=events), random.random((events, batches)), strict=True
    ):
        total = sizes.sum()
        rate = batches * mean + total
        pairs += length / rate * (sizes * (sizes - 1.0)).sum()
        sequences += length / rate * total
        if chance * rate < batches * mean:
            sizes[np.argmin(sizes + 0.5 * tie)] += 1.0
        else:
            sizes[np.searchsorted(np.cumsum(sizes), chance * rate - batches * mean, side="right")] -= 1.0
    return pairs / sequences


@pytest.mark.parametrize("batches", [2, 4, 8])
@pytest.mark.parametrize("mean", [0.2, 0.5, 1.0, 2.0, 8.0])
def test_companions_are_those_of_a_markov_chain(batches, mean):
    """Within a sixth of a sequence."""
    found = companions(np.array([mean]), np.array([float(batches)]))[0]
    assert found == pytest.approx(beside(batches, mean), abs=1 / 6)


def test_independent_arrivals_find_the_mean():
    """One batch has nothing to balance; and no balance is worse than none."""
    means = np.geomspace(0.01, 100.0, 50)
    assert companions(means, np.ones(50)) == pytest.approx(means)
    assert met_share(means, np.ones(50)) == pytest.approx(np.ones(50))
    for batches in (2.0, 8.0):
        share = met_share(means, np.full(50, batches))
        assert (share <= 1.0).all() and (np.diff(share) > 0).all()
