"""First rows of serving questions with a rate: measured servers, beside the rows within their band.

    python -m benchmarks.first_servers [--questions 24]

Counts first rows with a mechanism that no measured server has, although a plain row shown is close enough:
its gap to the best lies within the 90th percentile of the errors of plain servers.
"""

from __future__ import annotations

from pathlib import Path

import yaml

import meshwright as mw
from evidence.accuracy.first_rows import answered
from evidence.command import command
from meshwright.measured.served_errors import measured_of
from meshwright.reports.serving_evidence import short_evidence
from meshwright.reports.serving_verdict import gaps_of
from planner.serving.preferred import mechanisms

QUESTIONS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def first_row(question):
    """The first row of a question in words, and whether it is unmeasured (beside a plain row in its band).

    Raises:
        MeshwrightError: nothing meets the targets.
    """
    answer = mw.deploy(**question, top=10)
    search = answer.search
    first, band = answer.best, measured_of(search.question).band
    gaps = gaps_of(search)
    close = [plan for plan, gap in zip(search.plans, gaps, strict=True) if plan.meets and gap <= band]
    words = f"{first.describe()}, gives up {100 * gaps[0]:.1f} %, {short_evidence(search, first)}"
    wrong = ["unmeasured"] if mechanisms(first) and not all(map(mechanisms, close)) else []
    return words, wrong + ["composed"] * ("no measured server has" in words)


@command
def main(*, questions: int | None = None) -> None:
    rows = answered(QUESTIONS[:questions], first_row)
    unmeasured, composed = (sum(word in words for words in rows) for word in ("unmeasured", "composed"))
    print(
        f"{len(rows)} first rows: {unmeasured} unmeasured beside a measured one within its band; "
        f"{composed} with a mechanism that no measured server has"
    )
