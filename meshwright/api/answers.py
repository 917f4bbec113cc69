"""Answers of the planner with what every result has: tables, pages, pictures, files and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from core.errors import InfeasibleError
from meshwright.reports.flat import flat
from meshwright.shown import Shown
from planner.pareto import Fronts
from planner.run_search import RunRanking
from planner.serving.day import DayPlan, DayRun
from planner.serving.mix.search import Mix
from planner.sizing import Sizing

if TYPE_CHECKING:
    from meshwright.pages.page import Page

AnswerT = TypeVar("AnswerT", bound=Shown)


def shown_as(kind: type[AnswerT], planned: Any, **more: Any) -> AnswerT:
    """A result of the planner as an answer: a record with the same fields, and ``more``."""
    return kind(**{each.name: getattr(planned, each.name) for each in fields(planned)}, **more)


class SizingAnswer(Shown, Sizing):
    """The answer of ``mw.size``; see `planner.sizing.Sizing`."""

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.sizing import sizing_tables

        return sizing_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan size --json``."""
        from meshwright.reports.sizing import describe_sizing

        return describe_sizing(self)

    def page(self) -> Page:
        """Dollars against days.

        Raises:
            InfeasibleError: no plan fits at any size.
        """
        from meshwright.pages.sizing import sizing_page

        if self.fastest is None:
            raise InfeasibleError("no plan fits at any size")
        return sizing_page(self)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [flat(size) for size in self.to_dict()["sizes"]]


class FrontsAnswer(Shown, Fronts):
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


class MixAnswer(Shown, Mix):
    """The answer of ``mw.mix``; see `planner.serving.mix.search.Mix`."""

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.mixes import mix_tables

        return mix_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan mix --json``."""
        from meshwright.reports.mixes import describe_mix

        return describe_mix(self)

    def page(self) -> Page:
        """What is rented, and for what it is used."""
        from meshwright.pages.answers import mix_page

        return mix_page(self, self._tables())

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return [flat(pool) for pool in self.to_dict()["rented"]]


@dataclass(frozen=True, eq=False, repr=False)
class DayAnswer(Shown, DayPlan):
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


class RunRankingAnswer(Shown, RunRanking):
    """The answer of ``mw.plan_run``; see `planner.run_search.RunRanking`."""

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.run_search import run_search_tables

        return run_search_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright plan train --run --json``."""
        from meshwright.reports.run_search import describe_run_search

        return describe_run_search(self)

    def page(self) -> Page:
        """Dollars against days.

        Raises:
            InfeasibleError: no run works.
        """
        from meshwright.pages.answers import runs_page

        if self.best is None:
            raise InfeasibleError(f"no run works: {self.sizes[0].problem}")
        return runs_page(self, self._tables())

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        sizes = self.to_dict()["sizes"]
        return [
            {"gpus": size["gpus"], **flat(run)}
            for size in sizes
            for run in size.get("plans", [{"problem": size.get("problem")}])
        ]
