"""The deployment that one would launch: measured and plain ones first within the band."""

from __future__ import annotations

import numpy as np
import pytest

import meshwright as mw
from meshwright.deployments import deployment_question
from meshwright.measured.served_errors import measured_of
from meshwright.reports.serving_verdict import gaps_of, serving_headline
from planner.serving.alternatives import BEST, FIRST
from planner.serving.engine_check import _ranked
from planner.serving.preferred import EVEN, Measured, lead, mechanisms, preferred
from planner.serving.search import search_serving

ASKED = {"model": "qwen3-32b", "cluster": "dgx-h100", "gpus": 16, "isl": 2000, "osl": 300}
ASKED |= {"rate": 20.0, "ttft": 1.0, "tpot": 0.04}


@pytest.fixture(scope="module")
def asked():
    return deployment_question(None, ASKED)


@pytest.fixture(scope="module")
def chosen(asked):
    return search_serving(asked, top=5, measured=measured_of(asked))


def test_gaps_of_figures_to_maximise_and_to_minimise():
    assert lead(np.array([2.0, 3.0])) == pytest.approx([0.0, 0.5])
    assert lead(np.array([-3.0, -2.0])) == pytest.approx([0.0, 0.5])


@pytest.mark.parametrize(
    ("values", "composed", "rows", "band", "expected"),
    [
        ([1.0, 1.1, 1.2], [2, 0, 0], [0, 0, 9], 0.15, 1),
        ([1.0, 1.1, 1.2], [2, 0, 0], [0, 0, 9], 0.05, 0),
        ([1.0, 1.1, 1.14], [2, 0, 0], [0, 0, 9], 0.15, 2),
        ([1.0, 1.02, 1.2], [0, 0, 0], [0, 5, 9], 0.15, 1),
        ([1.0, 1.04, 1.2], [2, 1, 0], [0, 0, 0], 0.15, 1),
        ([1.0, 1.0 + EVEN + 0.01, 1.4], [2, 1, 0], [0, 0, 0], 0.15, 0),
        ([-20.0, -18.0], [1, 0], [0, 0], 0.15, 1),
        ([-20.0, -10.0], [1, 0], [0, 0], 0.15, 0),
    ],
)
def test_preferred(values, composed, rows, band, expected):
    """A plain one within the band, a measured layout on even footing; else fewest mechanisms."""
    assert preferred(np.array(values), np.array(composed), np.array(rows), band) == expected


def test_first_choice_is_a_measured_server_where_a_composed_one_is_no_cheaper(asked, chosen):
    """Qwen3-32B on H100: the best row needs two pools; a measured layout costs the same."""
    assert chosen.reasons[:1] == [FIRST]
    assert not mechanisms(chosen.plans[0])
    assert measured_of(asked).rows(chosen.plans[0].groups[0].shape) > 0
    best = dict(zip(chosen.reasons, chosen.plans, strict=True))[BEST]
    assert mechanisms(best)
    assert best.usd_per_million <= chosen.plans[0].usd_per_million


def test_without_measured_servers_the_best_row_is_first(asked, chosen):
    best = dict(zip(chosen.reasons, chosen.plans, strict=True))[BEST]
    assert search_serving(asked, top=1).plans[0].describe() == best.describe()


def test_look_keeps_to_the_same_rule(asked, chosen):
    """Any order of the deployments gives the same first choice."""
    plans = list(chosen.plans)[::-1]
    first = plans[_ranked(plans, asked, measured_of(asked))[0]]
    assert first.describe() == chosen.plans[0].describe()
    wide = Measured(lambda shape: 0, 10.0)
    assert not mechanisms(plans[_ranked(plans, asked, wide)[0]])


def test_verdict_names_what_is_given_up(chosen):
    """The gap of the first to the best of those shown, in lines of at most 100 characters."""
    words = serving_headline(chosen)[0]
    assert chosen.plans[0].describe() in words
    assert "for the same cost" in words
    assert max(map(len, words.splitlines())) <= 100
    assert gaps_of(chosen)[0] == pytest.approx(0.0, abs=1e-6)


def test_answer_says_more_cost_for_a_measured_server():
    """Qwen3-32B on 8 H200 at 5/s: a measured kind costs a device more than pipeline stages or two pools."""
    found = mw.deploy(
        **ASKED | {"cluster": "dgx-h200", "gpus": 8, "isl": 4000, "osl": 500, "rate": 5.0, "tpot": 0.03}
    )
    words = serving_headline(found.search)[0]
    gap = gaps_of(found.search)[0]
    assert not mechanisms(found.best)
    assert 0.0 < gap <= measured_of(found.search.question).band
    assert f"costs {100 * gap:.1f} % more a token" in " ".join(words.split())
