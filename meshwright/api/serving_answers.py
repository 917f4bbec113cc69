"""Answers of the planner about serving with what every result has; apart, as they take time to load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshwright.reports.flat import flat
from meshwright.result_base import Result
from planner.pareto import Fronts
from planner.serving.day import DayPlan, DayRun
from planner.serving.mix.search import Mix

if TYPE_CHECKING:
    from meshwright.pages.page import Page
    from planner.serving.mix.run import MixRun


class FrontsAnswer(Result, Fronts):
    """The answer of ``mw.serving_front``; see `planner.pareto.Fronts`."""

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.fronts import front_tables

        return front_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan --pareto --json``."""
        from meshwright.reports.fronts import describe_fronts

        return describe_fronts(self)

    def page(self) -> Page:
        """All fronts; a click on a point shows its scenario."""
        from meshwright.pages.fronts import fronts_page

        return fronts_page(self)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """Points of all fronts; ``front`` names their second figure."""
        rows = []
        for each in self.to_dict()["fronts"]:
            figures = ("name", each["x"], each["y"])
            rows += [{"front": each["y"], **{key: point[key] for key in figures}} for point in each["points"]]
        return rows

    def _first(self) -> None:
        """A front has no first plan."""
        return


@dataclass(frozen=True, eq=False, repr=False)
class MixAnswer(Result, Mix):
    """The answer of ``mw.mix``, with its run; see `planner.serving.mix.search.Mix`."""

    run: MixRun | None = None

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.mixes import mix_tables

        return mix_tables(self, self.run)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan mix --json``."""
        from meshwright.reports.mixes import describe_mix

        return describe_mix(self, self.run)

    def page(self) -> Page:
        """What is rented, and for what it is used."""
        from meshwright.pages.answers import mix_page

        return mix_page(self, self._tables())

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [flat(pool) for pool in self.to_dict()["rented"]]


@dataclass(frozen=True, eq=False, repr=False)
class DayAnswer(Result, DayPlan):
    """The answer of ``mw.day``, with its runs; see `planner.serving.day.DayPlan`."""

    runs: Sequence[DayRun] = ()

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.days import day_tables

        return day_tables(self, self.runs)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan day --json``."""
        from meshwright.reports.days import describe_day

        return describe_day(self, self.runs)

    def page(self) -> Page:
        """Replicas over the day."""
        from meshwright.pages.answers import day_page

        return day_page(self, self._tables())

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """One row for each part of the day."""
        period = self.arrivals.period
        return [
            {"starts_s": index * period, "rate": rate, "replicas": count}
            for index, (rate, count) in enumerate(zip(self.arrivals.rates, self.needed.tolist(), strict=True))
        ]
