"""Azure's public LLM inference traces of 2023 and 2024."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from core.errors import InputError
from simulator.serving.workload.traces.base import TraceFormat, TraceRow, csv_rows, number

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def _read(path: Path) -> Iterator[TraceRow]:
    start: datetime | None = None
    for where, cells in csv_rows(path, COLUMNS):
        time = _time(cells["TIMESTAMP"], where)
        start = start or time
        if (time.tzinfo is None) != (start.tzinfo is None):
            raise InputError(f"column 'TIMESTAMP': {cells['TIMESTAMP']!r} has another time zone form", where)
        prompt = number(cells, "ContextTokens", where, int, 0)
        output = number(cells, "GeneratedTokens", where, int, 0)
        if prompt and output:
            yield TraceRow((time - start).total_seconds(), prompt, output, (), where)


def _time(text: str, where: str) -> datetime:
    """Seven decimals (2023) are one more than Python reads."""
    seconds, dot, rest = (text or "").partition(".")
    decimals, zone = rest, ""
    for sign in "+-Z":
        if sign in rest:
            decimals, zone = rest[: rest.index(sign)], rest[rest.index(sign) :]
            break
    try:
        return datetime.fromisoformat(f"{seconds}{dot}{decimals[:6].ljust(6, '0') if dot else ''}{zone}")
    except ValueError:
        raise InputError(f"column 'TIMESTAMP': a date and time is needed, found {text!r}", where) from None


FORMAT = TraceFormat(
    "azure",
    ", ".join(COLUMNS),
    "github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace 2023 (Splitwise) and 2024 (DynamoLLM)",
    _read,
)
