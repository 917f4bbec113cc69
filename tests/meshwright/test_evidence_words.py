"""Measured runs behind a plan, in a few words."""

import numpy as np
import pytest

from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.verdict import band_words
from planner.training.confidence import Confidence
from planner.training.measured_runs import PlanEvidence


def confidence(**evidence) -> Confidence:
    """What is known of one plan with some evidence."""
    one = np.zeros(1)
    return Confidence(
        one, one, one.astype(bool), one, one, [PlanEvidence(together=0, nearest=None, **evidence)]
    )


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"runs": {"a": 6, "b": 9}}, "6 measured runs"),
        ({"runs": {"a": 1}}, "1 measured run"),
        ({"runs": {"a": 0, "b": 9}}, "no measured run"),
        ({"runs": {"a": 6}, "apart": ("a with b",)}, "unproven, 6 measured runs of its parts"),
    ],
    ids=["two", "one", "none", "apart"],
)
def test_parts_that_were_never_measured_together_are_no_proof(evidence, words):
    assert short_runs(confidence(**evidence)) == words


@pytest.mark.parametrize(("sources", "end"), [(0, "step."), (1, "1 source "), (22, "22 sources")])
def test_a_band_says_on_how_many_sources_it_rests(sources, end):
    words = band_words(sources)
    assert words.startswith("±: 90 % band of the step")
    assert end in words
