"""Measured scenarios: a scenario of any kind with ``measured:`` figures and their ``citation:``.

A figure is a key of ``simulate --json``, ``ttft_s.p50`` of one inside another, and its value carries a unit:
``measured: {step_time_s: 2.1 s, memory.peak_bytes: 61 GiB}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.errors import InputError, UnknownNameError, shown
from core.loading import read_mapping
from core.parsing import no_such_file
from core.written_numbers import LEAST_MEASURED, MOST_MEASURED
from meshwright.jobs import AskOptions, Question, job_of
from meshwright.questions.scenarios import OF_MEASUREMENTS, read_keys
from meshwright.reports.measured import MeasuredFigure

TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"B": 1.0, "MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30, "TB": 1e12, "TiB": 2.0**40}
RATES: dict[str, float] = dict.fromkeys(("tokens/s", "tokens/s/GPU", "requests/s", "/s"), 1.0)
UNITS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        r".*_bytes": BYTES,
        r".*(rate|rate_per_gpu|per_s|per_s_per_gpu|goodput)": RATES,
        r".*_s": TIMES,
        r"mfu.*|hfu|.*_share|hit_rate|kv_use|busy": {"%": 0.01},
        r"joules": {"J": 1.0, "kWh": 3.6e6},
    }
)
"""Units of a figure, by a key of its path."""
VALUE = re.compile(r"\s*([0-9][0-9,]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?)\s*(\S+)\s*")


def compared(files: Iterable[Path], progress: Callable[[float], None] | None = None) -> list[MeasuredFigure]:
    """Predict measured scenarios, each as ``simulate`` does.

    Args:
        files: scenarios with ``measured`` and ``citation``.
        progress: called with the finished share of the files.

    Raises:
        InputError: unreadable, no measured scenario, a figure that the answer lacks, or one without a unit.
    """
    scenarios = [(path, *_read(path)) for path in files]
    figures = []
    for number, (path, question, citation, measured) in enumerate(scenarios, start=1):
        answer = dict(_numbers(job_of(*question).answer(question, AskOptions(named=str(path))).to_dict()))
        for name, value in measured.items():
            if name not in answer:
                raise UnknownNameError(
                    "figure", name, [key for key in answer if _units(key)], f"{path}: measured"
                )
            figures.append(MeasuredFigure(path.stem, citation, name, value, answer[name]))
        if progress:
            progress(number / len(scenarios))
    return figures


def _read(path: Path) -> tuple[Question, str, dict[str, float]]:
    if path.suffix == ".csv" and not path.exists():
        raise no_such_file(path)
    if path.suffix == ".csv":
        raise InputError("is a table; --cases and --serving take tables of published runs", str(path))
    data = read_mapping(path)
    measured, citation = (data.get(key) for key in OF_MEASUREMENTS)
    if not isinstance(measured, Mapping) or not measured:
        raise InputError("key 'measured' must map figures of `simulate --json` to values", str(path))
    if not isinstance(citation, str) or not citation.strip():
        raise InputError("key 'citation' must say where the figures were measured", str(path))
    values = {
        str(name): _value(str(name), value, f"{path}: measured.{name}") for name, value in measured.items()
    }
    return (read_keys(path), str(path), path.parent), citation.strip(), values


def _value(name: str, value: object, where: str) -> float:
    units = _units(name)
    if not units:
        raise InputError("is no figure that is compared: times (_s), bytes, rates and shares are", where)
    read = VALUE.fullmatch(value) if isinstance(value, str) else None
    if read is None or read[2] not in units:
        raise InputError(f"must be a number with a unit ({', '.join(units)}), found {shown(value)}", where)
    figure = float(read[1].replace(",", "")) * units[read[2]]
    if not LEAST_MEASURED <= figure <= MOST_MEASURED:
        raise InputError(f"must be above 0 and no larger than {MOST_MEASURED:g}, found {shown(value)}", where)
    return figure


def _units(name: str) -> Mapping[str, float]:
    parts = name.split(".")
    return next(
        (units for pattern, units in UNITS.items() if any(re.fullmatch(pattern, part) for part in parts)), {}
    )


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Numbers of an answer by key path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)
