"""Functions that a kind of catalogue entry needs for ``show``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        cells: of an entry's line in the list for people, by heading.
        brief: an entry's JSON in a list; by default its model's.
        about: names and words of one entry, for people, those without words left out; None: its figures
            with their sources stand for all.
        parts: further tables of it.
        more: what is added when one entry is asked for.
        text_columns: how many of the columns hold text.
        folder: names in it are counted, and listed where it is asked for.
        group: word that stands for several entries in the place of a name.
    """

    names: Callable[[], Sequence[str]]
    get: Callable[[str], EntryT]
    cells: Mapping[str, Callable[[EntryT], str]]
    brief: Callable[[EntryT], dict[str, Any]] = dumped
    about: Callable[[EntryT], Mapping[str, str]] | None = None
    parts: Callable[[EntryT], list[Table]] = lambda _: []
    text_columns: int = 1
    more: Callable[[EntryT], dict[str, Any]] = lambda _: {}
    folder: str = ""
    group: Callable[[EntryT], str] | None = None

    def row(self, entry: EntryT) -> list[str]:
        """The entry's line in the list."""
        return [cell(entry) for cell in self.cells.values()]

    def tables(self, entry: EntryT) -> list[Table]:
        """Everything about an entry, for people."""
        if self.about is None:
            return constants(entry)
        words = {name: value for name, value in self.about(entry).items() if value}
        return [facts(words, self.brief(entry)["name"]), *self.parts(entry)]
