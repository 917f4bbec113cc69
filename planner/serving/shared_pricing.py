"""Step times and curves that searches of one process share.

Neither depends on targets, on a rate or on what ranks deployments. A question that changes these, fixes a
layout or asks for other formats finds the tables of its replicas priced and their curves drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.serving.question import ServingQuestion
from simulator.serving.steady.rate_curve import RateCurve
from simulator.serving.steps.costs import engine_of
from simulator.serving.steps.table import IterationTable

HELD = 2
"""Questions whose tables and curves are held."""
MOST_TABLES = 100
"""Tables of a question, some 1 MB each, beyond which they are released with the next question."""
MOST_CURVES = 32
"""Curves of a question that are held, those of up to 512 cases each: 2 MB."""


@dataclass(eq=False)
class SharedPricing:
    """What is priced of the replicas of a model on its GPU types.

    Attributes:
        tables: step times by what they depend on; see `planner.serving.shapes.make_shape`.
        curves: curves of cases by what they depend on, with the tables of their replicas.
    """

    tables: dict[tuple[Any, ...], IterationTable] = field(default_factory=dict)
    curves: dict[tuple[Any, ...], tuple[list[IterationTable], RateCurve]] = field(default_factory=dict)

    def keep(self, key: tuple[Any, ...], tables: list[IterationTable], curve: RateCurve) -> RateCurve:
        """Hold a curve; the oldest one leaves."""
        if len(self.curves) >= MOST_CURVES:
            self.curves.pop(next(iter(self.curves)), None)
        self.curves[key] = tables, curve
        return curve


_last: list[tuple[tuple[Any, ...], SharedPricing]] = []
"""By the question's model, GPU types, engine and site, the last one last."""


def shared_pricing(question: ServingQuestion) -> SharedPricing:
    """What is priced already for a question; it holds what is priced for it now."""
    key = question.model, question.types, engine_of(question.engine, Path(), "engine"), question.site
    for other, pricing in _last:
        if other == key:
            return pricing
    pricing = SharedPricing()
    small = [entry for entry in _last if len(entry[1].tables) <= MOST_TABLES]
    _last[:] = [*small[1 - HELD :], (key, pricing)]
    return pricing
