"""Answers of the planner about training with what every result has: tables, pages, files and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.errors import InfeasibleError
from meshwright.reports.flat import flat
from meshwright.result_base import Result
from planner.training.sizing import Sizing

if TYPE_CHECKING:
    from meshwright.pages.page import Page


class SizingAnswer(Result, Sizing):
    """The answer of ``mw.size``; see `planner.training.sizing.Sizing`."""

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
