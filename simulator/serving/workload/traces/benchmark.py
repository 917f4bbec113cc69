"""Lengths (and start times, where they were saved) of runs of vLLM's and SGLang's benchmark clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.errors import InputError
from simulator.serving.workload.traces.base import LARGEST, TraceFormat, TraceRow, json_rows, opened, parsed

NO_TIME = float("nan")


def _objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """One JSON document (vLLM's ``--save-result``), or one object a line (SGLang's ``--output-file``)."""
    with opened(path) as file:
        try:
            document = parsed(file.read(), str(path))
        except InputError:
            document = None  # one object a line
    if isinstance(document, dict):
        yield str(path), document
    else:
        yield from json_rows(path)


def _read(path: Path) -> Iterator[TraceRow]:
    for where, run in _objects(path):
        prompts, outputs = _list(run, "input_lens", where), _list(run, "output_lens", where)
        starts = _starts(run, where) or [NO_TIME] * len(prompts)
        if not len(prompts) == len(outputs) == len(starts):
            sizes = f"input_lens has {len(prompts)} entries, output_lens {len(outputs)}"
            raise InputError(f"{sizes}, start_times {len(starts)}", where)
        first = min(starts, default=0.0)
        rows = (
            sorted(zip(starts, prompts, outputs, strict=True))
            if first == first
            else zip(starts, prompts, outputs, strict=True)
        )
        for start, prompt, output in rows:
            if prompt > 0 and output > 0:
                yield TraceRow(start - first, prompt, output)


def _starts(run: Mapping[str, Any], where: str) -> list[float]:
    starts = run.get("start_times") or []
    if not isinstance(starts, list) or not all(
        isinstance(start, int | float) and abs(start) <= LARGEST for start in starts
    ):
        raise InputError("'start_times': a list of seconds is needed", where)
    return starts


def _list(run: Mapping[str, Any], name: str, where: str) -> list[int]:
    numbers = run.get(name)
    if not isinstance(numbers, list) or not all(
        isinstance(number, int) and number <= LARGEST for number in numbers
    ):
        raise InputError(f"{name!r}: a list of whole numbers is needed (--save-detailed writes it)", where)
    return numbers


FORMAT = TraceFormat(
    "benchmark",
    "input_lens, output_lens, perhaps start_times",
    "vLLM `bench serve --save-result --save-detailed`; SGLang `bench_serving --output-file --output-details`",
    _read,
    timed=False,
)
