"""Measured runs behind a plan, in a few words."""

import numpy as np
import pytest

from hwmodels.cluster import clusters
from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.verdict import band_words, unproven_words
from planner.training.confidence import Confidence
from planner.training.measured_runs import PlanEvidence, measured_runs
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.setting import Setting
from simulator.workload import Training


def confidence(**evidence) -> Confidence:
    """What is known of one plan with some evidence."""
    one = np.zeros(1)
    values = {"together": 0, "nearest": None, **evidence}
    return Confidence(one, one, one.astype(bool), one, one, [PlanEvidence(**values)])


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"runs": {"a": 6, "b": 9}}, "6 measured runs"),
        ({"runs": {"a": 1}}, "1 measured run"),
        ({"runs": {"a": 0, "b": 9}}, "no measured run"),
        ({"runs": {"a": 6}, "apart": ("a with b",)}, "unproven, 6 measured runs of its parts"),
        ({"runs": {"a": 6}, "far_from_runs": True}, "unproven, 6 measured runs of its parts"),
    ],
    ids=["two", "one", "none", "apart", "far"],
)
def test_parts_that_were_never_measured_together_are_no_proof(evidence, words):
    assert short_runs(confidence(**evidence)) == words


def test_plans_far_from_all_runs_are_named():
    setting = Setting(
        models.get("mixtral-8x7b"),
        clusters.get("dgx-h100").resized(8),
        Training(seq_len=4096, global_batch=64),
        frameworks.get("megatron-core"),
    )
    far, near = (
        unproven_words(confidence(runs={"a": 6}, nearest=measured_runs()[0], far_from_runs=far), setting)
        for far in (True, False)
    )
    assert far == [
        "All plans are unproven: no run of Megatron Core on hopper trained experts of about these widths in "
        "this number format."
    ]
    assert near == []


@pytest.mark.parametrize(("sources", "end"), [(0, "step."), (1, "1 source "), (22, "22 sources")])
def test_a_band_says_on_how_many_sources_it_rests(sources, end):
    words = band_words(sources)
    assert words.startswith("±: 90 % band of the step")
    assert end in words
