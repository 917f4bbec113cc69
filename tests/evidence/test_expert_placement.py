"""Placement of experts by affinity, and copies of hot experts."""

import numpy as np
import pytest

from core.errors import InputError
from evidence.claims.expert_placement import by_affinity, copies, exchange_share, in_order, synthetic_affinity


def test_shares_sum_to_one_and_load_is_even():
    affinity = synthetic_affinity(3, 8, 1.5)
    assert affinity.sum(axis=2) == pytest.approx(np.ones((2, 8)))
    assert affinity.sum(axis=1) == pytest.approx(np.ones((2, 8)))


def test_random_routing_leaves_nothing_to_place():
    placed = by_affinity(synthetic_affinity(3, 16, 0.0), 4)
    assert placed.local == pytest.approx(1 / 4)
    assert exchange_share(placed, 4, exchanges=2) == pytest.approx(1.0)


def test_certain_routing_stays_on_its_rank():
    affinity = np.stack([np.eye(8)[np.random.default_rng(layer).permutation(8)] for layer in range(3)])
    placed = by_affinity(affinity, 4)
    assert placed.local == pytest.approx(1.0)
    assert exchange_share(placed, 4) == pytest.approx(0.0)


def test_every_rank_has_as_many_experts():
    placed = by_affinity(synthetic_affinity(4, 16, 1.0, seed=3), 4)
    for layer in placed.ranks:
        assert np.bincount(layer).tolist() == [4, 4, 4, 4]


@pytest.mark.parametrize("law", [0.5, 1.0, 2.0])
def test_placed_experts_keep_more_tokens_than_numbered_ones(law):
    affinity = synthetic_affinity(4, 16, law, seed=1)
    assert by_affinity(affinity, 4).local > in_order(affinity, 4).local


def test_copies_even_out_a_hot_expert():
    even, hot = copies([1.0] * 8, 4, 2), [10.0, 1, 1, 1, 1, 1, 1, 1]
    assert even.imbalance == pytest.approx(1.0)
    assert copies(hot, 4, 3).imbalance < 0.6 * copies(hot, 4, 2).imbalance
    assert sorted(set(copies(hot, 4, 3).slots.ravel().tolist())) == list(range(8))


def test_bad_input():
    with pytest.raises(InputError, match="cannot be divided"):
        by_affinity(synthetic_affinity(2, 6, 1.0), 4)
    with pytest.raises(InputError, match="sum to 1"):
        by_affinity(np.ones((1, 4, 4)), 2)
    with pytest.raises(InputError, match="hold no 9 experts"):
        copies([1.0] * 9, 4, 2)
