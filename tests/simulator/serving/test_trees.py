"""Programs that search a tree, and agents whose tools fail."""

from itertools import combinations

import numpy as np
import pytest

from simulator.serving.workload.programs.agent import Agent
from simulator.serving.workload.programs.tree_search import Leaf, TreeSearch, spread


def calls_of(program, seed=0, prompt=640, output=128):
    ids = iter(range(10**6))
    return list(
        program.calls(
            lambda: (prompt, output),
            lambda n: tuple(next(ids) for _ in range(max(n, 0))),
            (),
            np.random.default_rng(seed),
        )
    )


@pytest.mark.parametrize("price", [0.0, 0.5, 5.0])
def test_a_tree_has_its_width_and_steps_and_children_repeat_their_parents(price):
    turns = calls_of(TreeSearch(width=12, steps=4, price=price))
    assert [len(turn) for turn in turns] == [12] * 4
    assert [{call.prompt for call in turn} for turn in turns] == [{640 + 128 * step} for step in range(4)]
    parents = {call.prefix for call in turns[1]}
    assert all(any(call.prefix[: len(one)] == one for one in parents) for call in turns[2])


def spans(turns):
    return len({one for call in turns[-1] for one in call.prefix})


def test_a_price_shares_more_and_no_price_keeps_all():
    free, priced, dear = (
        [calls_of(TreeSearch(width=24, steps=5, price=price), seed) for seed in range(5)]
        for price in (0.0, 1.0, 50.0)
    )
    assert sum(map(spans, dear)) <= sum(map(spans, priced)) < sum(map(spans, free))
    # At any price the best leaf goes on.
    assert all(spans(one) == 10 + 2 * 4 for one in dear)


def test_the_greedy_choice_is_near_the_best_of_all_subsets():
    random = np.random.default_rng(3)
    tree = TreeSearch(width=6, steps=2, price=1.0)
    for _ in range(20):
        leaves = [Leaf(640, (0, 1, *(10 + random.integers(4, size=3)).tolist())) for _ in range(6)]
        shares = random.dirichlet(np.ones(6))
        total = len({span for leaf in leaves for span in leaf.spans})

        def worth(chosen, leaves=leaves, shares=shares, total=total):
            held = {span for one in chosen for span in leaves[one].spans}
            return sum(shares[one] for one in chosen) - tree.price * len(held) / total

        best = max(worth(some) for count in range(1, 7) for some in combinations(range(6), count))
        assert worth(tree.leaves_kept(leaves, shares)) >= best - 0.15


def test_whole_numbers_add_up():
    assert spread(np.array([0.5, 0.3, 0.2]), 7) == [4, 2, 1]
    assert sum(spread(np.full(3, 1 / 3), 10)) == 10


def test_tools_that_fail_cost_a_call_each_and_none_where_none_fails():
    plain = calls_of(Agent(rounds=4, fork=2))
    assert plain == calls_of(Agent(rounds=4, fork=2, fail=0.0))
    found = [len(calls_of(Agent(rounds=4, fork=2, fail=0.5), seed)) for seed in range(300)]
    # Three rounds follow tools, each with a mean of one failure.
    assert np.mean(found) == pytest.approx(8 + 3, abs=0.5)
    assert min(found) == len(plain) == 8
