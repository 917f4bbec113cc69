"""The format of a file of requests, from its first line or keys."""

from __future__ import annotations

import csv
import json
from itertools import islice
from pathlib import Path

from core.errors import InputError, shown_path
from simulator.serving.workload.traces import (
    azure,
    bailian,
    burstgpt,
    formats,
    llmservingsim,
    plain,
    splitwise,
)
from simulator.serving.workload.traces.base import TraceFormat, opened

BY_COLUMNS = {
    "azure": azure.COLUMNS,
    "burstgpt": burstgpt.COLUMNS,
    "plain": plain.COLUMNS,
    "splitwise": splitwise.COLUMNS,
}
BY_KEYS = {
    "bailian": bailian.COLUMNS,
    "mooncake": ("input_length", "output_length"),
    "llmservingsim": llmservingsim.COLUMNS,
    "benchmark": ("input_lens", "output_lens"),
    "weka": ("block_size", "requests"),
}
"""Columns or keys that tell a format; the first whose own a file has."""
ENOUGH = 2**16
"""Characters in which keys of a JSON document are looked for."""


def detect_format(path: Path) -> TraceFormat:
    """The format that a file's first line has.

    Raises:
        InputError: unreadable, empty, or of no known format; with what it holds and what formats need.
    """
    with opened(path) as file:
        lines = list(islice((line for line in file if line.strip()), 1))
    if not lines:
        raise InputError("holds no requests", shown_path(path))
    first = lines[0]
    if first.lstrip().startswith("["):
        return formats["sharegpt"]
    if first.lstrip().startswith("{"):
        there = _keys(first)
        by_mark = BY_KEYS
    else:
        there = next(csv.reader([first]))
        by_mark = BY_COLUMNS
    for name, needed in by_mark.items():
        if all(column in there for column in needed):
            return formats[name]
    needs = "; ".join(f"{form.name}: {form.columns}" for form in formats.values())
    columns = ", ".join(there[:12]) or "nothing readable"
    raise InputError(
        f"has no lengths of requests in a known form; found {columns}. Known: {needs}", shown_path(path)
    )


def _keys(line: str) -> list[str]:
    """Keys of an object in a line; of a document that goes on, the known keys in its beginning."""
    try:
        document = json.loads(line)
    except ValueError:
        return [key for keys in BY_KEYS.values() for key in keys if f'"{key}"' in line[:ENOUGH]]
    return list(document) if isinstance(document, dict) else []
