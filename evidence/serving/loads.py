"""Measured loads of servers in rows of closed loops, for ``meshwright learn``."""

from __future__ import annotations

import csv
from pathlib import Path

from core.loading import read_text
from evidence.serving import closed_loop
from evidence.serving.case import MeasuredRow, ServingCase
from meshwright.observations.server_results import LATENCIES
from meshwright.validation.rows import SkippedRow
from simulator.uncertainty.servers import MeasuredLoad


def read_loads(path: Path) -> tuple[list[MeasuredLoad], list[tuple[str, str]]]:
    """Loads of a CSV with the columns of closed loops, and rows left out with the reasons.

    Raises:
        InputError: unreadable.
    """
    rows, skipped = [], []
    for number, row in enumerate(csv.DictReader(read_text(path).splitlines()), 2):
        values = {"harness": "", "case_id": f"{path.name}:{number}", **row}
        try:
            case = closed_loop.read(MeasuredRow(values, f"{path}:{number}"), path.name)
            if case.question.prefill is not None or case.question.speculates:
                raise SkippedRow("pools of prompts and speculation have no factors of their own")
            load = load_of(case)
            if not load.measured:
                raise SkippedRow("neither ttft nor tpot measured")
        except SkippedRow as error:
            skipped.append((values["case_id"], str(error)))
            continue
        rows.append(load)
    return rows, skipped


def load_of(case: ServingCase) -> MeasuredLoad:
    """The load of a row of closed loops."""
    keys = {name: "{}_ms_{}".format(*name.split("_")) for name in LATENCIES}
    latencies = {name: 1e-3 * case.measured[key] for name, key in keys.items() if key in case.measured}
    return MeasuredLoad(case.case_id, case.question.run().scenario, latencies)
