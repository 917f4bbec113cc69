"""The step of one given plan in two or three lines: what it reaches, how sure that is, and its parts."""

from __future__ import annotations

from meshwright.reports.parts import grouped
from meshwright.reports.plans import shortage
from meshwright.reports.tables import fitted
from meshwright.reports.units import percent
from meshwright.reports.verdict import first_words
from planner.training.prediction import Prediction

NAMED = 4
"""Parts of the step that the verdict names, the largest."""


def step_headline(prediction: Prediction) -> str:
    """The step of the first plan: its figures, its parts, the largest first, and what it lacks to run."""
    seconds_of = {name: float(part[0]) for name, part in prediction.step.seconds.items()}
    total = float(prediction.step.time[0])
    parts = sorted(grouped(seconds_of).items(), key=lambda item: -item[1])
    words = [f"{name} {percent(part / total, 0)}" for name, part in parts[:NAMED]]
    rest = sum(part for _, part in parts[NAMED:]) / total
    words += [f"the rest {percent(rest, 0)}"] if rest >= 0.005 else []
    lacking = shortage(prediction)
    sentences = [f"Of the step: {', '.join(words)}."]
    if lacking:
        sentences.insert(0, f"{lacking[0].upper()}{lacking[1:]}.")
    return "\n".join(fitted(first_words(prediction), sentences))
