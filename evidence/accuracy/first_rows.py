"""First rows of training questions: chance to fit and measured runs, beside the rows within their band.

    python -m benchmarks.first_rows [--questions 24]

Counts first rows that fit with less than 95 %, or rest on a mechanism without a measured run, although
another row shown is close enough and does not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

import meshwright as mw
from core.errors import MeshwrightError
from evidence.command import command
from planner.training.confidence import within_band
from planner.training.shortlist import SAFE
from simulator.uncertainty import chance_to_fit

QUESTIONS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def first_row(question):
    """The first row of a question, and what stands against it, in words.

    Raises:
        MeshwrightError: no plan fits.
    """
    search = mw.plan(**question, seq_len=4096, top=10)
    search.check()
    prediction, setting = search.found, search.result.setting
    fits = chance_to_fit(prediction.memory.peak, setting.cluster.device.memory_bytes, setting)
    unproven = [bool(each.unproven) for each in prediction.confidence.evidence]
    fastest = int(np.argmin(prediction.step.time))
    order = np.array([fastest, *(row for row in range(len(fits)) if row != fastest)])
    close = np.zeros(len(fits), bool)
    close[order] = within_band(setting, prediction.plans.take(order))
    others = [row for row in range(1, len(fits)) if close[row]]
    words = []
    if fits[0] < SAFE and any(fits[row] >= SAFE for row in others):
        words.append("fits below 95 %")
    if unproven[0] and any(not unproven[row] and fits[row] >= SAFE for row in others):
        words.append("unmeasured")
    figures = f"fits with {100 * fits[0]:.0f} %, {prediction.confidence.evidence[0].fewest} runs"
    return f"{prediction.plans.plan(0).describe()}, {figures}", words


def answered(questions, first_row):
    """Print the first rows of questions; returns what stands against each that has one.

    Args:
        questions: mappings of arguments.
        first_row: of a question; its line, and words for what stands against it.
    """
    rows = []
    for question in questions:
        try:
            line, words = first_row(question)
        except MeshwrightError as error:
            print(*question.values(), f"no plan: {error}", flush=True)
            continue
        rows.append(words)
        print(*question.values(), line, *(f"[{word}]" for word in words), flush=True)
    return rows


@command
def main(*, questions: int | None = None) -> None:
    rows = answered(QUESTIONS[:questions], first_row)
    risky, unmeasured = (sum(word in words for words in rows) for word in ("fits below 95 %", "unmeasured"))
    print(
        f"{len(rows)} first rows: {risky} fit below 95 % beside a safe row, "
        f"{unmeasured} unmeasured beside a measured one"
    )
