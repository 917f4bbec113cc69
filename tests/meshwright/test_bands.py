"""Errors of parts: what a fit finds in runs of known errors, and what a source left out is judged by."""

from dataclasses import replace

import numpy as np
import pytest

from evidence.accuracy.bands import half_width, left_out
from evidence.fits.part_errors import PredictedRun, evidence_scale, fit_variances, fitted, pairs
from simulator.uncertainty import EVIDENCE, PARTS

HOST = PARTS.index("host")


def run(source, error, host=0.0, question="", plan=""):
    exposed = np.zeros(len(PARTS))
    exposed[[0, HOST, -1]] = 1 - host, host, 1.0
    own = np.zeros(len(PARTS))
    return PredictedRun(source, error, exposed, own, question=question, plan=plan)


def drawn(sources=60, runs=8, host_error=0.4, noise=0.03):
    """Runs of setups whose host time alone is wrong."""
    draw = np.random.default_rng(1)
    made = []
    for number in range(sources):
        off = host_error * draw.standard_normal()
        for _ in range(runs):
            host = draw.uniform(0.0, 0.5)
            made.append(run(f"s{number}", np.expm1(-(host * off + noise * draw.standard_normal())), host))
    return made


def test_the_fit_finds_the_part_that_is_wrong():
    found = fit_variances(drawn())
    spread = dict(zip(PARTS, np.sqrt(found.parts), strict=True))
    assert spread["host"] == pytest.approx(0.4, rel=0.35)
    assert max(spread["products"], spread["whole"]) < 0.05
    assert np.sqrt(found.residual) == pytest.approx(0.03, rel=0.25)


def test_nine_of_ten_runs_are_inside_their_band():
    runs = drawn()
    errors, _ = fitted(runs)
    inside = [abs(one.error) <= half_width(one, errors) for one in runs]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)


def test_a_source_is_judged_by_the_others():
    runs = [*drawn(20), run("odd", 0.9)]
    others = left_out(runs)
    assert abs(runs[-1].error) > half_width(runs[-1], others["odd"])


def test_less_evidence_is_never_surer():
    found = fit_variances(drawn(20))
    runs = [
        replace(run("n", error), evidence=near, new=True)
        for near, error in zip(EVIDENCE, (0.2, 0.1, 0.4, 0.3), strict=True)
    ]
    scales = list(evidence_scale(runs, found).values())
    assert scales == sorted(scales)


def test_a_repeated_plan_is_one_plan_of_a_question():
    runs = [run("a", 0.1, question="q", plan="p"), run("a", 0.3, question="q", plan="p")]
    assert pairs(runs) == []
    assert len(pairs([*runs, run("a", 0.0, question="q", plan="other")])) == 1
