"""The shapes to measure, read from ``shapes.yaml``, and how they shrink to fit a small machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from core.errors import InputError
from core.loading import read_mapping
from profiles.measure.bench import Scope

Shape = dict[str, int]

FILE = Path(__file__).parent / "shapes.yaml"


def gemm_shapes(block: str, mode: str) -> list[Shape]:
    """The m, n, k of a block of ``shapes.yaml``."""
    return [dict(zip("mnk", map(int, text.split("x")), strict=True)) for text in _block(block, mode)]


def lettered_shapes(block: str, mode: str) -> list[Shape]:
    """Shapes written as letter and number ("b2 q128 kv128 h16/8 d64"), by letter.

    "h16/8" is 16 query heads over 8 KV heads and gives the letters h and g.
    """
    shapes = []
    for text in _block(block, mode):
        shape: Shape = {}
        for word in text.split():
            match = re.fullmatch(r"([a-z]+)(\d+)(?:/(\d+))?", word)
            if match is None:
                raise InputError(f"{word!r} is not a letter and a number", f"{FILE}: {block}.{mode}")
            shape[match[1]] = int(match[2])
            if match[3]:
                shape["g"] = int(match[3])
        shapes.append(shape)
    return shapes


def shrunk(
    shapes: Iterable[Shape],
    scope: Scope,
    work: Callable[[Shape], tuple[float, float]],
    smaller: Callable[[Shape], Shape],
) -> Iterator[Shape]:
    """Scale shapes down to the scope; duplicates are removed.

    A shape that cannot be made small enough is left out.

    Args:
        shapes: as a data-centre GPU would measure them.
        scope: holds the limits.
        work: (FLOP, bytes moved) of a shape.
        smaller: a shape of about half the work.
    """
    seen = set()
    for shape in shapes:
        while not scope.fits(*work(shape)) and smaller(shape) != shape:
            shape = smaller(shape)
        key = tuple(shape.items())
        if key not in seen and scope.fits(*work(shape)):
            seen.add(key)
            yield shape


def halved(shape: Shape, letter: str) -> Shape:
    """The shape with one of its sizes halved, at least 1."""
    return shape | {letter: max(1, shape[letter] // 2)}


@cache
def _table() -> dict[str, dict[str, str | list[str]]]:
    return read_mapping(FILE)


def _block(block: str, mode: str) -> list[str]:
    shapes = _table()[block][mode]
    return shapes.split() if isinstance(shapes, str) else shapes
