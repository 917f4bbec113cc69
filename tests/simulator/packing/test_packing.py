"""Documents in rows, rows in micro batches."""

import numpy as np
import pytest

from simulator.lengths.empirical import Empirical
from simulator.lengths.fixed import FixedLength
from simulator.lengths.lognormal import Lognormal
from simulator.packing import PACKINGS
from simulator.packing.steps import DrawnSteps

LONG_TAIL = Lognormal(median=900, sigma=1.2, most=8192)
SQUARE = 1e-4


@pytest.mark.parametrize("packing", list(PACKINGS))
def test_one_length_is_the_micro_batch_of_equal_sequences(packing):
    drawn = DrawnSteps(FixedLength(tokens=4096), packing, 4096, 64)
    micro = drawn.of(np.array([4, 8]), np.array([2, 1]), SQUARE)
    assert micro.sequences.tolist() == [2, 1]
    assert micro.length.tolist() == [4096, 4096]
    assert micro.late.tolist() == pytest.approx([1, 1])
    assert drawn.paces(4, 2, SQUARE) == [1.0] * 8
    assert drawn.padding(2) == 0


@pytest.mark.parametrize("packing", list(PACKINGS))
def test_micro_batches_hold_all_tokens_of_documents(packing):
    drawn = DrawnSteps(LONG_TAIL, packing, 8192, 64)
    micro, _ = drawn.costs(4, 2, SQUARE)
    assert micro.real.sum() == pytest.approx(drawn.rows.real.sum())
    assert (micro.real <= micro.tokens + 1e-9).all()
    assert micro.tokens.shape[1:] == (4, 8)


def test_padding_is_the_longest_times_the_count():
    """ShareGPT-like lengths: padded tokens are the longest of each micro batch, times its documents."""
    drawn = DrawnSteps(LONG_TAIL, "pad", 8192, 64)
    documents = drawn.rows.tokens.reshape(-1, 8)
    padded = drawn.costs(1, 8, SQUARE)[0].tokens
    assert padded.sum() == documents.max(axis=1).sum() * 8
    assert drawn.padding(8) == pytest.approx(1 - documents.sum() / padded.sum())


def test_best_fit_leaves_little_padding():
    drawn = DrawnSteps(LONG_TAIL, "pack", 8192, 64)
    assert (drawn.rows.real <= 8192).all()
    assert 0 <= drawn.padding(1) < 0.03
    assert (drawn.rows.squares <= drawn.rows.real * 8192 + 1e-6).all()


def test_concatenated_rows_have_no_padding_and_are_filled_from_many_steps():
    """Rows of one step's documents alone left some empty, for which pipelines waited up to 9 % too long."""
    packed, joined = (DrawnSteps(LONG_TAIL, packing, 8192, 64).rows for packing in ("pack", "concat"))
    assert np.array_equal(joined.tokens, joined.real)
    assert joined.tokens.mean() >= packed.real.mean()
    assert (joined.tokens < 0.9 * 8192).mean() < 0.2 * (packed.real < 0.9 * 8192).mean()


def test_dealing_by_cost_shortens_the_slowest_replica():
    packed, dealt = (DrawnSteps(LONG_TAIL, packing, 8192, 128) for packing in ("pack", "balance"))
    assert np.array_equal(packed.rows.squares.sum(), dealt.rows.squares.sum())
    slowest = [each.costs(16, 1, SQUARE)[1].sum(axis=2).max(axis=1).mean() for each in (packed, dealt)]
    even = packed.costs(16, 1, SQUARE)[1].sum(axis=2).mean()
    assert even <= slowest[1] < slowest[0]
    assert slowest[1] < 1.02 * even


def test_the_same_law_draws_the_same_steps():
    first, again = (DrawnSteps(LONG_TAIL, "pack", 8192, 32).rows for _ in range(2))
    assert np.array_equal(first.squares, again.squares)


def test_documents_longer_than_a_row_are_cut():
    drawn = DrawnSteps(Empirical(tokens=[100, 20_000]), "none", 8192, 32)
    assert drawn.rows.tokens.max() == 8192
