"""Tables that are derived from predictions are those of the code."""

from pathlib import Path

import evidence.fits.stale as stale

CASES = stale.shipped_cases()


def test_no_line_of_a_derived_table_is_stale():
    assert [*stale.stale_gains(CASES), *stale.stale_errors(CASES)] == []


def test_a_line_of_other_physics_is_found(monkeypatch, tmp_path):
    case = "megatron-bridge-26.08-gpt-oss-120b-gb300-64-mxfp8"
    for name, column in (("DOMAINS_FILE", "gain"), ("RUNS_FILE", "errors")):
        path: Path = getattr(stale, name)
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        at = header.split(",").index(column)
        moved = [
            ",".join([*cells[:at], "0.777", *cells[at + 1 :]]) if case in line else line
            for line in lines
            for cells in [line.split(",")]
        ]
        other = tmp_path / path.name
        other.write_text("\n".join([header, *moved]), encoding="utf-8")
        monkeypatch.setattr(stale, name, other)
    cases = [each for each in CASES if each.case_id == case]
    assert cases and any("grouped_launches" in line for line in stale.stale_gains(cases))
    assert any("0.777" in line for line in stale.stale_errors(cases))
