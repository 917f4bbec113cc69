"""Tables on devices: whole, cut by rows or columns, or copied to all.

A device's work is the seconds of its look-ups and of its part of the exchange. No assignment of pieces has a
device with less work than the mean, or than the largest piece (the bound of the linear relaxation, in which
pieces are divided at will).
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.errors import InfeasibleError
from core.loading import Strict
from core.quantities import Few, NotNegative
from core.records import record

Array = NDArray[np.float64]


class Shards(Strict):
    """How tables are laid on devices."""

    kind: Literal["auto", "table", "row", "column"] = Field(
        "auto",
        description="auto: tables with more than a device's share of the work are cut, as the library cuts; "
        "table: none is; row, column: all are, into `pieces`",
    )
    pieces: Few | None = Field(None, description="of a cut table; default: all devices")
    replicated: Annotated[float, NotNegative] = Field(
        0.0, description="tables of at most so many bytes have a copy on each device"
    )
    room: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="share of a device's memory for tables"
    )


@record()
class Pieces:
    """Pieces of tables, one row each, shape (pieces,).

    Attributes:
        table: number of the table.
        rows: of the piece.
        lookups: rows that a sample reads of it.
        width: its share of an embedding's width.
        vectors: pooled vectors that a sample takes from it, in full widths.
        bytes: of the piece with its optimizer's state.
    """

    table: NDArray[np.int64]
    rows: Array
    lookups: Array
    width: Array
    vectors: Array
    bytes: Array

    def where(self, which: NDArray[np.bool_]) -> Pieces:
        """Some of the pieces."""
        return Pieces(
            self.table[which],
            self.rows[which],
            self.lookups[which],
            self.width[which],
            self.vectors[which],
            self.bytes[which],
        )


@record()
class TablePlacement:
    """Pieces on devices.

    Attributes:
        pieces: that lie on one device each.
        device: of each piece, shape (pieces,).
        copied: numbers of the tables with a copy on each device.
        work_s: seconds of a batch by device, shape (devices,).
        bound_s: least that the longest of them can be.
    """

    pieces: Pieces
    device: NDArray[np.int64]
    copied: NDArray[np.int64]
    work_s: Array
    bound_s: float

    @property
    def most_s(self) -> float:
        """Seconds of the busiest device."""
        return float(self.work_s.max(initial=0.0))

    @property
    def gap(self) -> float:
        """How much longer the longest device works than the bound, as a share."""
        return self.most_s / self.bound_s - 1.0 if self.bound_s else 0.0

    def summed(self, values: Array) -> Array:
        """Sums of the pieces' values by device, shape (devices,)."""
        return np.bincount(self.device, values, minlength=len(self.work_s)).astype(np.float64)


def cut_pieces(
    rows: Array,
    lookups: Array,
    stored_bytes: float,
    cuts: NDArray[np.int64],
    by: str,
    table: NDArray[np.int64],
) -> Pieces:
    """Pieces of tables.

    A piece by rows sums what it has of a sample's rows; a sample whose rows all lie elsewhere takes nothing
    from it, so that it has 1 - (1 - 1/cuts)^lookups of a vector in the mean. A piece by columns has all rows.

    Args:
        rows: of each table, shape (tables,).
        lookups: rows that a sample reads of it.
        stored_bytes: of a row, with the optimizer's state.
        cuts: pieces of each table, shape (tables,).
        by: ``rows`` or ``columns``.
        table: number of each table, shape (tables,).
    """
    part = 1.0 / np.repeat(cuts, cuts)
    stored, reads, full = np.repeat(rows, cuts), np.repeat(lookups, cuts), np.ones(len(part))
    size = stored * stored_bytes * part
    numbers = np.repeat(table, cuts)
    if by == "rows":
        return Pieces(numbers, stored * part, reads * part, full, 1.0 - (1.0 - part) ** reads, size)
    return Pieces(numbers, stored, reads, part, part, size)


def place(work: Array, sizes: Array, places: int, room: float) -> NDArray[np.int64]:
    """The place of every piece: that with the least work of those with room for it, the largest piece first.

    Args:
        work: seconds of each piece, shape (pieces,).
        sizes: bytes of each.
        places: devices, or groups of devices.
        room: bytes of a place.

    Raises:
        InfeasibleError: a piece is larger than what any place has left.
    """
    load, space = np.zeros(places), np.full(places, room)
    where = np.zeros(len(work), dtype=np.int64)
    for piece in np.lexsort((-sizes, -work)):
        fits = np.flatnonzero(space >= sizes[piece])
        if not fits.size:
            raise InfeasibleError(
                f"a piece of a table has {sizes[piece] / 1e9:.1f} GB, and no place more than "
                f"{max(space.max(), 0.0) / 1e9:.1f} GB left; more devices, a smaller format, or smaller "
                "pieces (shards.kind: row, column) would help"
            )
        place = fits[np.argmin(load[fits])]
        load[place] += work[piece]
        space[place] -= sizes[piece]
        where[piece] = place
    return where
