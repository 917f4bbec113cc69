"""Provenance of points: ``provenance.yaml`` beside them, one entry per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from core.errors import InputError
from core.files import write_text
from core.loading import read_mapping
from profiles import points
from profiles.measure.machine import Machine, clocks
from profiles.measure.result import SkippedPoint


class Provenance:
    """The file with device, software and clocks of the points of a folder.

    It is written atomically when a run begins and again when it ends.
    """

    def __init__(self, path: Path, machine: Machine, mode: str, dtypes: Sequence[str]) -> None:
        self.path, self.machine = path, machine
        earlier = _runs(path) if path.is_file() else []
        self.run: dict[str, Any] = {
            "started": _now(),
            "mode": mode,
            "dtypes": list(dtypes),
            "versions": machine.versions,
            "clocks": [],
        }
        self.runs = [*earlier, self.run]
        self._write()

    def look_at_clocks(self, measured_points: int) -> None:
        """Note clocks, power and throttling after a number of points of this run."""
        clock_fields = clocks(self.machine)
        if clock_fields:
            self.run["clocks"].append({"after_points": measured_points, **clock_fields})

    def finish(
        self,
        measured: int,
        skipped: Sequence[SkippedPoint],
        without_graph: Sequence[str],
        interrupted: bool,
    ) -> None:
        """Record the end of the run."""
        self.run |= {
            "ended": _now(),
            "measured": measured,
            "interrupted": interrupted,
            "skipped": [{"point": point.point, "reason": point.reason} for point in skipped],
            "without_graph": list(without_graph),
        }
        self._write()

    def _write(self) -> None:
        machine = self.machine
        content = {
            "device": {
                "name": machine.name,
                "full_name": machine.full_name,
                "kind": machine.kind,
                "dtypes": list(machine.dtypes),
                "multiprocessors": machine.multiprocessors,
                "last_level_cache_bytes": machine.cache_bytes,
                "memory_bytes": machine.memory_bytes,
            },
            "observed": observed(self.path.parent),
            "units": "times in the point files are microseconds; spread is interquartile range over median",
            "runs": self.runs,
        }
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
        write_text(self.path, text)


def was_interrupted(folder: Path) -> bool:
    """Whether the last run into a folder, if any, stopped before its plan was done."""
    path = folder / "provenance.yaml"
    runs = _runs(path) if path.is_file() else []
    return bool(runs) and bool(runs[-1].get("interrupted", True))


def _runs(path: Path) -> list[dict[str, Any]]:
    """The runs that the file tells of.

    Raises:
        InputError: not such a file.
    """
    runs = read_mapping(path).get("runs", [])
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise InputError(f"runs: a list of mappings is needed, found {runs!r:.60}", str(path))
    return runs


def observed(folder: Path) -> dict[str, Any]:
    """Highest rates of a folder's points: FLOP/s by dtype, memory bandwidth, noisy points.

    For a device outside the catalogue, these replace the data sheet.
    """
    paths = points.files(folder)
    best: dict[str, Any] = {"points": {}, "flops": {}}
    noisy: Counter[str] = Counter()
    for name, path in paths.items():
        if path.stat().st_size == 0:
            continue
        table = points.read(path, points.TABLES[name])
        best["points"][name] = len(table)
        noisy[name] = int((table["spread"] > 0.03).sum())
        if name == "gemm":
            rates = 2.0 * table["m"] * table["n"] * table["k"] / (table["time_us"] * 1e-6)
            for dtype in sorted(set(table["dtype"].tolist())):
                best["flops"][dtype] = float(f"{rates[table['dtype'] == dtype].max():.4g}")
        if name == "elementwise":
            copies = table.where(table["op"] == "copy")
            if len(copies):
                largest = int(np.argmax(copies["bytes_per_token"]))
                bytes_s = copies["bytes_per_token"][largest] / (copies["time_us"][largest] * 1e-6)
                best["memory_bandwidth"] = float(f"{bytes_s:.4g}")
    best["points_with_spread_above_3_percent"] = dict(noisy)
    return best


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
