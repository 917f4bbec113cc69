"""Functions that a kind of catalogue entry needs for ``show``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.table import Table

from core.sources import Sourced
from meshwright.reports.tables import facts, table

EntryT = TypeVar("EntryT")


@dataclass(frozen=True)
class Kind(Generic[EntryT]):
    """Reads the entries of one catalogue and puts them into JSON and tables.

    Attributes:
        names: all names of the catalogue.
        get: the entry that a name (or a path) means.
        brief: an entry's JSON in a list.
        more: what is added when one entry is asked for.
        columns: headings of the list for people.
        row: an entry's line in it.
        tables: everything about one entry, for people.
        text_columns: how many of the columns hold text.
    """

    names: Callable[[], Sequence[str]]
    get: Callable[[str], EntryT]
    brief: Callable[[EntryT], dict[str, Any]]
    columns: Sequence[str]
    row: Callable[[EntryT], Sequence[str]]
    tables: Callable[[EntryT], list[Table]]
    text_columns: int = 1
    more: Callable[[EntryT], dict[str, Any]] = lambda _: {}


def constants(entry: Sourced) -> list[Table]:
    """Every figure of an entry with a name and a title, each with its source."""
    name, title = (str(getattr(entry, key)) for key in ("name", "title"))
    rows = [
        [key, str(origin.value), origin.kind, origin.source] for key, origin in sorted(entry.origins.items())
    ]
    return [facts({"title": title}, name), table(("key", "value", "kind", "source"), rows, left=4)]
