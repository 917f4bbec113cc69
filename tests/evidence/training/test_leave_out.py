"""Errors with a source left out: which constants go, that they come back, and what counts as evidence."""

import csv
import json

import pytest

from evidence.training.chosen_constants import CONSTANTS, chosen_on, without_constants
from evidence.training.leave_out import EACH, leave_out
from evidence.training.parts import sources
from meshwright.validation.cases import read_cases
from meshwright.validation.ledger import Ledger, evaluate, predicted

ROW = {
    "gpu": "h100-sxm",
    "n_gpus": "8",
    "n_layers": "24",
    "d_model": "1024",
    "n_heads": "16",
    "seq_len": "2048",
    "global_batch": "64",
    "micro_batch": "1",
    "tp": "1",
    "pp": "1",
    "precision": "bf16",
    "framework": "Megatron-Core",
    "derived_step_time_s": "2.0",
}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["case_id", *ROW])
        writer.writeheader()
        writer.writerows({"case_id": name, **ROW} for name in ("MB-1", "MB-2", "NEW-1"))
    return path


def test_a_launch_bound_step_is_shorter_without_the_launches_chosen_on_its_source(rows):
    found = leave_out(evaluate([rows]), EACH)
    times = {run.shipped.case.case_id: run for run in found.runs}
    assert times["MB-1"].left_out.predicted_step_s < times["MB-1"].shipped.predicted_step_s
    assert times["NEW-1"].left_out.predicted_step_s == times["NEW-1"].shipped.predicted_step_s


def test_constants_come_back(rows):
    cases = read_cases(rows)[0]
    before = [entry.predicted_step_s for entry in predicted(cases)]
    for name in sources().chosen_on:
        with without_constants(name):
            pass
    assert [entry.predicted_step_s for entry in predicted(read_cases(rows)[0])] == before


def test_evidence_is_of_other_sources_only(rows):
    alone = leave_out(evaluate([rows]), "MB")
    assert {run.source for run in alone.runs} == {"MB"}
    assert {run.evidence for run in alone.runs} == {"framework and device"}
    cases = evaluate([rows])
    only = type(cases)([entry for entry in cases.entries if entry.case.case_id != "NEW-1"], [])
    assert {run.evidence for run in leave_out(only, "MB").runs} == {"none"}


def test_every_constant_names_sources_that_the_facts_list():
    named = {source for constant in CONSTANTS for source in constant.sources}
    assert named <= set(sources().chosen_on)
    assert chosen_on("dgxc") == chosen_on("DGXC")


def test_json_has_each_run_and_three_groupings(rows, run):
    report = json.loads(run("validate", "--cases", str(rows), "--leave-out", "source", "--json").out)
    assert set(report["left_out"]) == {"by_evidence", "by_class", "by_source", "runs"}
    band = report["left_out"]["by_class"]["all"]["band"]
    assert (band["of"], band["sources"]) == (3, 2) and band["half_width"] > 0
    assert len(report["left_out"]["runs"]) == 3


def test_an_unknown_source_is_named_with_the_nearest(rows, refused):
    message = refused("validate", "--cases", str(rows), "--leave-out", "NEQ")
    assert "unknown source 'NEQ'" in message and "NEW" in message


def test_bands_are_as_wide_as_what_other_sources_measured(rows):
    """A framework that only the source itself ran on a device is predicted with less evidence."""
    entries = evaluate([rows]).entries
    alone = leave_out(Ledger([entry for entry in entries if entry.case.case_id != "NEW-1"], []), "MB").runs[0]
    beside = leave_out(evaluate([rows]), "MB").runs[0]
    assert alone.left_out.predicted_step_s == beside.left_out.predicted_step_s
    assert alone.left_out.uncertainty > beside.left_out.uncertainty
