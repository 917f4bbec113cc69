"""Deployments whose batches outgrow the captured graphs."""

from math import inf

import pytest

from meshwright.questions.serving import serving_question
from meshwright.reports.serving_checked import graphs_words
from meshwright.reports.serving_plans import describe_deployments
from planner.serving.lasting import requests_in_graphs
from planner.serving.search import search_serving

FLAGS = dict.fromkeys(("share", "objective")) | {
    "engine": "tensorrt-llm-1.2",
    "model": "gpt-oss-20b",
    "cluster": "dgx-h200",
    "gpus": 1,
    "isl": 100,
    "osl": 300,
    "ttft": 0.5,
    "tpot": 0.02,
}


@pytest.mark.parametrize(("rate", "least", "largest"), [(25.0, inf, inf), (36.0, 500.0, 10_000.0)])
def test_a_row_tells_after_how_many_requests_its_batches_leave_the_graphs(rate, least, largest):
    """Ten runs of the event engine at 36 requests/s: half of them leave within 3,000 requests."""
    search = search_serving(serving_question(None, {**FLAGS, "rate": rate}, {}, {}), 1)
    assert least <= requests_in_graphs(search.question, search.plans[0]) <= largest
    assert len(graphs_words(search)) == (largest < inf)
    (told,) = describe_deployments(search, {})["deployments"]
    assert ("requests_in_graphs" in told) == (largest < inf)
