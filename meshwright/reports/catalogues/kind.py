"""Functions that a kind of catalogue entry needs for ``show``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.table import Table

from meshwright.reports.tables import facts, table

EntryT = TypeVar("EntryT")


def constants(entry: Any) -> list[Table]:
    """Every figure of a `Sourced` entry with a name and a title, each with its source."""
    name, title = (str(getattr(entry, key)) for key in ("name", "title"))
    rows = [
        [key, str(origin.value), origin.kind, origin.source] for key, origin in sorted(entry.origins.items())
    ]
    return [facts({"title": title}, name), table(("key", "value", "kind", "source"), rows, left=4)]


def dumped(entry: Any) -> dict[str, Any]:
    """The JSON of an entry that is a pydantic model."""
    return entry.model_dump(mode="json")


@dataclass(frozen=True)
class Kind(Generic[EntryT]):
    """Reads the entries of one catalogue and puts them into JSON and tables.

    Attributes:
        names: all names of the catalogue.
        get: the entry that a name (or a path) means.
        columns: headings of the list for people.
        row: an entry's line in it.
        brief: an entry's JSON in a list; by default its model's.
        tables: everything about one entry, for people; by default its figures with their sources.
        more: what is added when one entry is asked for.
        text_columns: how many of the columns hold text.
    """

    names: Callable[[], Sequence[str]]
    get: Callable[[str], EntryT]
    columns: Sequence[str]
    row: Callable[[EntryT], Sequence[str]]
    brief: Callable[[EntryT], dict[str, Any]] = dumped
    tables: Callable[[EntryT], list[Table]] = constants
    text_columns: int = 1
    more: Callable[[EntryT], dict[str, Any]] = lambda _: {}
