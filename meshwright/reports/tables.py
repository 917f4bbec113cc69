"""Tables in one style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

WHOLE = 14
"""Length up to which a cell stays on one line: "13.4 %" and "607 ms ± 16 %" are not broken."""
GAP, EDGES = 3, 2
"""Characters between two columns, and at both ends of a line."""


class Sheet(Table):
    """A table without truncated cells.

    In a narrow terminal, cells wrap; in a narrower one, columns continue in a table below, beside the columns
    that identify the rows.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, left: int) -> None:
        super().__init__(
            title=escape(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
        )
        self.headings, self.cells, self.left = list(columns), [list(row) for row in rows], left
        for index, column in enumerate(columns):
            self.add_column(escape(column), justify="left" if index < left else "right", no_wrap=index == 0)
        for row in self.cells:
            self.add_row(*(escape(cell) for cell in row))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it in one piece, or in several below each other."""
        room = options.max_width - EDGES
        if _width(self._natural) <= room:
            yield from super().__rich_console__(console, options)
            return
        for number, columns in enumerate(self._pieces(room)):
            yield self._piece(columns, room, first=number == 0)

    @property
    def _natural(self) -> list[int]:
        return [max(map(cell_len, self._column(index))) for index in range(len(self.headings))]

    @property
    def _least(self) -> list[int]:
        narrow = [max(map(_unbroken, self._column(index))) for index in range(len(self.headings))]
        return [self._natural[0], *narrow[1:]]

    def _column(self, index: int) -> list[str]:
        return [self.headings[index], *(row[index] for row in self.cells)]

    def _pieces(self, room: int) -> list[list[int]]:
        """The columns of every piece: as many as fit beside the identifying columns."""
        least, keys = self._least, list(range(self._keys()))
        pieces = [list(keys)]
        for index in range(len(keys), len(self.headings)):
            if _width([least[each] for each in (*pieces[-1], index)]) > room and len(pieces[-1]) > len(keys):
                pieces.append(list(keys))
            pieces[-1].append(index)
        return pieces

    def _keys(self) -> int:
        """Number of leading columns that identify the rows; 1 where no number does."""
        for count in range(1, self.left + 1):
            if len({tuple(row[:count]) for row in self.cells}) == len(self.cells):
                return count
        return 1

    def _piece(self, columns: Sequence[int], room: int, first: bool) -> Table:
        natural, widths = self._natural, {index: self._least[index] for index in columns}
        left = room - _width(list(widths.values()))
        while left > 0 and (short := [index for index in columns if widths[index] < natural[index]]):
            widths[min(short, key=lambda index: widths[index])] += 1
            left -= 1
        piece = Table(
            title=self.title if first else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
        )
        for index in columns:
            heading, justify = escape(self.headings[index]), self.columns[index].justify
            piece.add_column(heading, justify=justify, width=widths[index], overflow="fold")
        for row in self.cells:
            piece.add_row(*(escape(row[index]) for index in columns))
        return piece


def _width(columns: Sequence[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def _unbroken(cell: str) -> int:
    """Characters of a cell, or of its longest word where it is long."""
    length = cell_len(cell)
    return length if length <= WHOLE else max(map(cell_len, cell.split()))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", left: int = 1) -> Table:
    """A table with ``left`` columns of text, then columns of numbers.

    Cells are shown as they are: markup in a user's name stays text.
    """
    return Sheet(columns, list(rows), title, left)


def facts(values: Mapping[str, str], title: str = "") -> Table:
    """Names and values, one per line."""
    sheet = Table(title=escape(title) if title else None, title_justify="left", box=None, show_header=False)
    sheet.add_column(style="dim", no_wrap=True)
    sheet.add_column(overflow="fold")
    for name, value in values.items():
        sheet.add_row(escape(name), escape(value))
    return sheet


SENTENCE = 100
"""Characters of a line of a verdict."""


def fitted(parts: Sequence[str], sentences: Sequence[str] = (), room: int = SENTENCE) -> list[str]:
    """Parts of a sentence, and further sentences, on as few lines as fit: a line breaks between them only."""
    ends = ([","] * (len(parts) - 1) + ["."])[: len(parts)]
    lines: list[str] = []
    for part in (*(f"{part}{end}" for part, end in zip(parts, ends, strict=True)), *sentences):
        if lines and len(lines[-1]) + len(part) < room:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines
