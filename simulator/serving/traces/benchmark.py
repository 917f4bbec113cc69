"""Lengths (and start times, where they were saved) of runs of vLLM's and SGLang's benchmark clients."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwmodels.errors import InputError
from simulator.serving.traces.base import Row, TraceFormat, json_rows, opened

NO_TIME = float("nan")


def _objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """One JSON document (vLLM's ``--save-result``), or one object a line (SGLang's ``--output-file``)."""
    with opened(path) as file:
        try:
            whole = json.load(file)
        except json.JSONDecodeError:
            whole = None
    if isinstance(whole, dict):
        yield str(path), whole
    else:
        yield from json_rows(path)


def _read(path: Path) -> Iterator[Row]:
    for where, run in _objects(path):
        prompts, outputs = _list(run, "input_lens", where), _list(run, "output_lens", where)
        starts = run.get("start_times") or [NO_TIME] * len(prompts)
        if not len(prompts) == len(outputs) == len(starts):
            raise InputError(f"input_lens has {len(prompts)} entries, output_lens {len(outputs)}", where)
        first = min(starts, default=0.0)
        rows = (
            sorted(zip(starts, prompts, outputs, strict=True))
            if first == first
            else zip(starts, prompts, outputs, strict=True)
        )
        for start, prompt, output in rows:
            if prompt > 0 and output > 0:
                yield Row(start - first, prompt, output)


def _list(run: Mapping[str, Any], name: str, where: str) -> list[int]:
    found = run.get(name)
    if not isinstance(found, list) or not all(isinstance(one, int) for one in found):
        raise InputError(f"{name!r}: a list of whole numbers is needed (--save-detailed writes it)", where)
    return found


FORMAT = TraceFormat(
    "benchmark",
    "input_lens, output_lens, perhaps start_times",
    "vLLM `bench serve --save-result --save-detailed`; SGLang `bench_serving --output-file --output-details`",
    _read,
    timed=False,
)
