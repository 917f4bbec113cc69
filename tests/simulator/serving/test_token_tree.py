"""Trees of proposals under one budget."""

from heapq import heappop, heappush

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.question.draft_budget import verified
from simulator.serving.question.token_tree import grown
from tests.simulator.serving.test_draft_budget import run


def best_tree(acceptance, sibling, depth, branches, nodes):
    """Mean tokens of a step with the best tree of so many nodes, grown node by node."""
    ranks = [acceptance, *((1 - acceptance) * sibling * (1 - sibling) ** one for one in range(branches - 1))]
    heap, total = [(-rank, 1) for rank in ranks], 1.0
    heap.sort()
    for _ in range(nodes):
        likely, level = heappop(heap)
        total -= likely
        if level < depth:
            for rank in ranks:
                heappush(heap, (likely * rank, level + 1))
    return total


@pytest.mark.parametrize("nodes", [1, 5, 17, 60])
def test_a_tree_of_alike_nodes_is_the_best_of_its_size(nodes):
    found = grown(0.6, 0.0, 0.35, 8, 4, 4 * (nodes + 1), 4)
    assert found.queries == pytest.approx(nodes + 1)
    assert found.shares.sum() == pytest.approx(1.0)
    assert (found.shares > -1e-12).all()
    assert found.mean == pytest.approx(best_tree(0.6, 0.35, 8, 4, nodes), rel=1e-9)


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_one_branch_is_a_chain(spread):
    tree, chain = grown(0.7, spread, 0.3, 5, 1, 64 * 4, 64), verified(0.7, spread, 5, 64 * 4, 64)
    assert tree.queries == chain.queries == 4.0
    assert tree.mean == pytest.approx(chain.mean, rel=0.02)


def test_trees_that_follow_confidence_yield_more_than_a_fixed_one():
    fixed, dynamic = (grown(0.6, spread, 0.3, 8, 4, 32 * 20, 32) for spread in (0.0, 0.3))
    assert fixed.queries == dynamic.queries == 20.0
    assert dynamic.mean > 1.03 * fixed.mean
    # And a tree more than a chain, which stops at its depth.
    assert fixed.mean > verified(0.6, 0.0, 8, 32 * 20, 32).mean


def test_a_budget_above_the_whole_tree_verifies_all_of_it():
    found = grown(0.6, 0.2, 0.3, 3, 2, 10**6, 1)
    assert found.queries == pytest.approx(1 + 2 + 4 + 8)
    assert grown(0.6, 0.2, 0.3, 3, 2, 8, 8).mean == 1.0


def test_more_budget_never_yields_less():
    means = [grown(0.5, 0.2, 0.3, 6, 3, 16 * tokens, 16).mean for tokens in range(1, 40)]
    assert (np.diff(means) >= -1e-12).all()


def test_a_batch_of_trees_runs_and_its_stretches_are_steps():
    result = run(budget=1000, spread=0.2, branches=4)
    assert len(result.records) == 80
    steps = result.setting.pools[0].costs.steps
    for decodes in (3, 80):
        first, growth, count = steps.stretch(decodes, decodes * 300)
        assert first == pytest.approx(steps.step((), decodes, decodes * 300))
        assert growth > 0
        assert count >= 1


def test_branches_without_a_budget_are_refused():
    with pytest.raises(InputError, match="budget"):
        run(branches=3)
