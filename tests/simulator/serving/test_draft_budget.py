"""Proposals of a batch under one budget."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.question.draft_budget import verified
from simulator.serving.question.speculation import Speculation
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()


def chain(acceptance, tokens):
    return sum(acceptance**i for i in range(tokens + 1))


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_a_budget_above_all_proposals_is_none(spread):
    found = verified(0.7, spread, 4, 10_000, 16)
    assert found.queries == 5.0
    assert found.mean == pytest.approx(chain(0.7, 4), rel=0.01)
    assert found.shares.sum() == pytest.approx(1.0)


def test_proposals_alike_are_divided_evenly():
    found = verified(0.7, 0.0, 4, 16 * 3, 16)
    assert found.queries == 3.0
    assert found.mean == pytest.approx(chain(0.7, 2))
    between = verified(0.7, 0.0, 4, 40, 16)
    assert between.mean == pytest.approx(0.5 * (chain(0.7, 1) + chain(0.7, 2)), rel=1e-3)


def test_the_likeliest_of_a_batch_yield_more_than_an_even_share():
    even, picked = (verified(0.7, spread, 5, 16 * 3, 16) for spread in (0.0, 0.25))
    assert even.queries == picked.queries == 3.0
    assert picked.mean > 1.02 * even.mean
    # And less than all proposals would.
    assert picked.mean < chain(0.7, 5)


def test_a_budget_of_one_token_each_is_no_speculation():
    found = verified(0.9, 0.1, 4, 16, 16)
    assert (found.queries, found.mean) == (1.0, 1.0)
    assert verified(0.9, 0.1, 4, 8, 16).mean == 1.0


def run(requests=80, **speculation):
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "burst"},
            "input": 100,
            "output": 200,
        },
        "deployment": {
            "options": {"max_context": 2048},
            "speculation": {"draft": "llama3.2-1b", "tokens": 4, "acceptance": 0.7, **speculation},
        },
    }
    return serve(make_serving(data, "test", Path(), TABLES))


def test_a_budget_that_binds_never_is_close_to_none():
    plain, wide = run(), run(budget=100_000)
    assert wide.metrics.output_rate == pytest.approx(plain.metrics.output_rate, rel=0.02)


def test_stretches_are_steps():
    steps = run(budget=200, spread=0.2).setting.pools[0].costs.steps
    for decodes in (3, 50, 80, 128):
        first, growth, count = steps.stretch(decodes, decodes * 300)
        assert first == pytest.approx(steps.step((), decodes, decodes * 300))
        later = steps.step(
            (), decodes, decodes * 300 + round(decodes * speculated(200).in_batch(decodes).mean)
        )
        assert count >= 1
        assert growth == pytest.approx(later - first, rel=0.05)


def speculated(budget):
    return Speculation(draft="llama3.2-1b", tokens=4, acceptance=0.7, budget=budget, spread=0.2)


def test_larger_batches_verify_fewer_tokens_of_each():
    found = [speculated(200).in_batch(count).queries for count in (1, 40, 80, 150, 300)]
    np.testing.assert_allclose(found, [5.0, 5.0, 2.5, 200 / 150, 1.0], rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spread": 0.2}, "give one"),
        ({"budget": 64, "spread": 0.48}, "below"),
        ({"budget": 64, "expanded": True}, "excludes"),
        ({"budget": 64, "acceptance": [1.0, 1.0]}, "one number"),
    ],
)
def test_senseless_budgets_are_refused(change, says):
    with pytest.raises(InputError, match=says):
        run(**change)
