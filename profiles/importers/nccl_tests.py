"""Logs of NVIDIA's nccl-tests (and rccl-tests): the printed table, and the JSON of ``-J``.

Out-of-place times are taken. ``size`` is the whole buffer, as in our files. Older logs do not name the
collective; then the file's name or the options must.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.loading import read_text
from profiles.importers.common import Importer, ImportOptions, TablePoint, beginning, dtype_name, parsed_json
from profiles.measure.machine import catalogue_name

COLLECTIVES = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "alltoall": "alltoall",
    "all_to_all": "alltoall",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
    "broadcast": "broadcast",
}
RANK = re.compile(
    r"#\s+Rank\s+\d+\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+(\S+) device\s+\d+ \[[^\]]*\]\s+(.+)"
)
HEADING = re.compile(r"#\s+size\s+count\s+type\b")


@dataclass(frozen=True)
class _Run:
    """What all points of a log share."""

    collective: str
    device: str
    ranks: int
    nodes: int
    version: str

    def row(self, size: int, dtype: str, time_us: float, options: ImportOptions) -> TablePoint:
        system = options.system or options.gpu or catalogue_name(self.device)
        source = options.source or f"nccl-tests:nccl-{self.version}"
        values = {"system": system, "op": self.collective, "dtype": dtype_name(dtype)}
        counts = {"n_gpus": self.ranks, "n_nodes": self.nodes, "bytes": size}
        return "collectives", {**values, **counts, "time_us": time_us, "source": source}


def _recognises(path: Path) -> bool:
    start = beginning(path, 65536)
    if path.suffix == ".json":
        return '"nccl_version"' in start
    return HEADING.search(start) is not None


def _read(path: Path, options: ImportOptions) -> Iterator[TablePoint]:
    text = read_text(path)
    return (
        _read_json(path, text, options) if text.lstrip().startswith("{") else _read_log(path, text, options)
    )


def _collective(named: str, path: Path, options: ImportOptions) -> str:
    for candidate in (options.collective, named, path.stem):
        for name, collective in COLLECTIVES.items():
            if name in candidate.lower():
                return collective
    raise InputError("does not say which collective it measured; name it", str(path))


def _version(number: int) -> str:
    """2.27.7 from NCCL's 22707 (or 2804 of the years before 2.9)."""
    base = 10000 if number >= 10000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def _read_log(path: Path, text: str, options: ImportOptions) -> Iterator[TablePoint]:
    run: _Run | None = None
    ranks: list[tuple[str, str, str]] = []
    named, version, time_column = "", "unknown", 5
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            if match := re.search(r"Collective test starting: (\S+)", line):
                named = match[1]
            elif line.startswith("# Using devices"):
                ranks, run = [], None
            elif match := re.search(r"nccl-library=(\d+)", line):
                version = _version(int(match[1]))
            elif match := RANK.match(line):
                ranks.append((match[1] or "0", match[2], match[3].strip()))
            elif HEADING.match(line):
                time_column = _time_column(line, path, number)
            continue
        cells = line.split()
        if len(cells) < 8 or not cells[0].isdigit() or not cells[1].isdigit():
            continue
        if run is None:
            if not ranks:
                raise InputError(f"line {number}: no 'Rank' lines before the first result", str(path))
            members = [rank for rank in ranks if rank[0] == ranks[0][0]]
            hosts = {host for _, host, _ in members}
            run = _Run(_collective(named, path, options), ranks[0][2], len(members), len(hosts), version)
        time_us = _time(cells[time_column], path, f"line {number}, column time")
        yield run.row(int(cells[0]), cells[2], time_us, options)


def _time_column(heading: str, path: Path, number: int) -> int:
    names = heading.lstrip("# ").split()
    if "time" not in names:
        raise InputError(f"line {number}: no column 'time' (was it run with -C for CPU time?)", str(path))
    return names.index("time")


def _read_json(path: Path, text: str, options: ImportOptions) -> Iterator[TablePoint]:
    data = parsed_json(text, path)
    try:
        config, results = data["config"], data["results"]
        devices = config.get("devices") or data.get("devices") or []
        version = _version(int(data["nccl_version"]))
        first: Mapping[str, Any] = devices[0]
        members = [device for device in devices if device.get("group", 0) == first.get("group", 0)]
        # a build without MPI lists only its first device
        ranks = max(len(members), int(config.get("nthreads", 1)) * int(config.get("ngpus", 1)))
        hosts = {device["hostname"] for device in members}
        named = Path(str((data.get("args") or [""])[0])).name
        run = _Run(_collective(named, path, options), first["device_info"], ranks, len(hosts), version)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"is not the JSON of nccl-tests (missing or wrong: {error})", str(path)) from None
    for index, result in enumerate(results):
        where = f"results.{index}"
        measured = result.get("out_of_place") or result.get("in_place")
        if not isinstance(measured, Mapping) or "time" not in measured:
            raise InputError(f"{where}: no time on the device (was it run with cpu_time?)", str(path))
        time_us = _time(measured["time"], path, f"{where}.time")
        yield run.row(int(result["size"]), result["type"], time_us, options)


def _time(value: str | float, path: Path, where: str) -> float:
    try:
        time_us = float(value)
    except ValueError:
        raise InputError(f"{where}: a time in microseconds is needed, found {value!r}", str(path)) from None
    if not time_us >= 0:
        raise InputError(f"{where}: a time above 0 is needed, found {value!r}", str(path))
    return time_us


NCCL_TESTS = Importer("nccl-tests", "logs of nccl-tests and rccl-tests, text or JSON", _recognises, _read)
