"""Answers that laws compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import meshwright as mw
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from tests.laws.questions import Question

ROUNDING = 1e-9
"""Share by which sums of the same parts in another order may differ."""


def step(question: Question) -> dict[str, Any]:
    """What ``simulate --json`` prints of a training scenario."""
    return mw.simulate(question).to_dict()


def served_run(question: Question) -> ServingResult:
    """The run of a serving scenario on the event engine."""
    return serve(make_serving(question, "law", Path()))


def not_slower(changed: float, base: float, what: str) -> None:
    """Refuse a time that rose by more than rounding."""
    assert changed <= base * (1 + ROUNDING), f"{what}: {base:.6g} s becomes {changed:.6g} s"
