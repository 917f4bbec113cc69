"""Lengths counted in a file with columns tokens and weight: ``{kind: histogram, file: lengths.csv}``."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.parsing import read_text
from simulator.lengths.empirical import Empirical

HEADER = ["tokens", "weight"]
KEYS = {"kind", "file"}
MOST_TOKENS = 2**27
"""Longest document, as the longest sequence of a workload."""


def with_histogram(data: Mapping[str, Any], where: str, folder: Path) -> Mapping[str, Any]:
    """The mapping of a scenario whose lengths are no longer a file, but what the file counts.

    Raises:
        InputError: an unreadable file, another header, lengths that are no whole numbers above 0, weights
            below 0 or all 0.
    """
    workload = data.get("workload")
    if not isinstance(workload, Mapping):
        return data
    law = workload.get("lengths")
    if not isinstance(law, Mapping) or law.get("kind") != "histogram":
        return data
    where = f"{where}: workload.lengths"
    if set(law) != KEYS or not isinstance(law["file"], str):
        raise InputError(f"a histogram has kind and file, found {', '.join(map(str, law))}", where)
    counted = read_histogram(folder / law["file"]).model_dump()
    return {**data, "workload": {**workload, "lengths": counted}}


def read_histogram(path: Path) -> Empirical:
    """The lengths that a file counts.

    Raises:
        InputError: as `with_histogram`.
    """
    lines = list(csv.reader(read_text(path).splitlines()))
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    if [name.strip() for name in header] != HEADER:
        raise InputError(
            f"columns must be {','.join(HEADER)}, found {','.join(header) or 'nothing'}", str(path)
        )
    tokens, weights = [], []
    for number, row in enumerate(rows, start=2):
        place = f"{path}:{number}"
        if len(row) != len(HEADER):
            raise InputError(f"two values are needed, found {len(row)}", place)
        length, weight = map(_number, row)
        if not 1 <= length <= MOST_TOKENS or length != int(length):
            raise InputError(f"tokens must be a whole number, 1 to {MOST_TOKENS:,}; found {row[0]!r}", place)
        if not weight >= 0:
            raise InputError(f"weight must be a number of at least 0, found {row[1]!r}", place)
        tokens.append(int(length))
        weights.append(weight)
    if not sum(weights):
        raise InputError("no length has a weight above 0", str(path))
    return Empirical(tokens=tokens, weights=weights)


def _number(text: str) -> float:
    """A finite number, or NaN."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
