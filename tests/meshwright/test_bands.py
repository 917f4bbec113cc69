"""Model errors of bands: what a source that is left out is judged by."""

from dataclasses import replace

import pytest

from benchmarks.bands import PredictedRun, error_of, evidence_errors, left_out
from simulator.uncertainty import EVIDENCE


def run(source, kind, error, calibration=0.0):
    return PredictedRun(source, kind, False, "hopper", "nvidia", error, calibration)


DENSE = [run(source, "dense", error) for source in "abcdef" for error in (0.02, 0.1)]


def test_a_kind_of_many_sources_has_its_own_error():
    assert error_of("dense", DENSE) == pytest.approx(0.1)
    assert error_of("dense", [*DENSE, *(run("z", "amd", 0.5) for _ in range(99))]) == pytest.approx(0.1)


def test_a_kind_of_few_sources_is_not_surer_than_all_kinds():
    few = [run("y", "amd", 0.0), run("z", "amd", 0.01)]
    assert error_of("amd", [*DENSE, *few]) == pytest.approx(0.1)
    assert error_of("amd", [*DENSE, run("z", "amd", 0.4)]) == pytest.approx(0.4)
    assert error_of("amd", DENSE) == pytest.approx(0.1)


def test_a_source_is_judged_by_the_others():
    wrong = run("g", "dense", 0.3, calibration=0.1)
    judged = {id(one): inside for one, inside in left_out([*DENSE, wrong])}
    assert not judged[id(wrong)]
    assert all(judged[id(one)] for one in DENSE)


def test_less_evidence_is_never_surer():
    runs = [
        replace(run("n", "dense", error), evidence=near, new=True)
        for near, error in zip(EVIDENCE, (0.2, 0.1, 0.4, 0.3), strict=True)
    ]
    assert list(evidence_errors(runs).values()) == [0.2, 0.2, 0.4, 0.4]
