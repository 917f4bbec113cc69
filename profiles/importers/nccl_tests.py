"""Logs of NVIDIA's nccl-tests and AMD's rccl-tests: the table, and the JSON of ``-J`` or ``-Z json``.

Out-of-place times are taken. ``size`` is the whole buffer, as in our files. Labels of launchers (mpirun's
``[1,0]<stdout>:``, srun's ``0:``, kubectl's, time stamps) before a line are dropped. Older logs do not name
the collective: a command line in the log, the file's name, or the operation and the bus factor then do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import InputError, UnknownNameError, shown
from core.files import beginning
from core.loading import read_text
from profiles.importers.common import Importer, ImportOptions, TablePoint, dtype_name, parsed_json
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
LABEL = re.compile(
    r"(?:\[[^\]\s][^\]\n]{0,120}\](?:<std(?:out|err)>)?:?|\d{1,6}:|[A-Za-z][\w.\-/]{0,80}:"
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?)[ \t]?(?=[#\s\d\[]|\Z)"
)
"""What a launcher puts before each line of a rank."""
MOST_LABELS = 3
LONGEST_US = 3.6e9
MOST_LINE = 4096
"""Characters of a line that are read."""
RCCL = re.compile(r"RCCL version\s*:\s*(\d+(?:\.\d+)*)")
COMMAND = re.compile(r"\b([a-z_]+)_perf\b")
SUMMED = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
}
"""Bus bandwidth over algorithm bandwidth of collectives that add up (nccl-tests, doc/PERFORMANCE.md)."""
BUS_TOLERANCE = 0.02


@dataclass(frozen=True)
class _Run:
    """What all points of a log share."""

    collective: str
    device: str
    ranks: int
    nodes: int
    version: str
    library: str = "nccl"

    def row(self, size: int, dtype: str, time_us: float, options: ImportOptions) -> TablePoint:
        system = options.system or options.gpu or catalogue_name(self.device)
        source = options.source or f"{self.library}-tests:{self.library}-{self.version}"
        values = {"system": system, "op": self.collective, "dtype": dtype_name(dtype)}
        counts = {"n_gpus": self.ranks, "n_nodes": self.nodes, "bytes": size}
        return "collectives", {**values, **counts, "time_us": time_us, "source": source}


def _recognises(path: Path) -> bool:
    start = beginning(path, 65536)
    if path.suffix == ".json":
        return '"nccl_version"' in start or '"busBw"' in start
    return HEADING.search(start) is not None


def unlabelled(line: str) -> str:
    """A line without the labels of launchers."""
    line = line[:MOST_LINE]
    for _ in range(MOST_LABELS):
        match = LABEL.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line.lstrip()  # as logs stand in pages and in lists


def _read(path: Path, options: ImportOptions) -> Iterator[TablePoint]:
    text = read_text(path)
    if path.suffix == ".json" and text.lstrip().startswith("["):
        return _read_records(path, text, options)
    return (
        _read_json(path, text, options) if text.lstrip().startswith("{") else _read_log(path, text, options)
    )


def _collective(named: str, path: Path, options: ImportOptions, otherwise: str = "") -> str:
    """The collective of a log.

    Args:
        named: by the log itself.
        path: whose name may tell.
        options: of the import.
        otherwise: what the table of results implies.

    Raises:
        InputError: nothing names it, or the option names none.
    """
    if options.collective and options.collective.lower() not in COLLECTIVES:
        raise UnknownNameError(
            "collective", options.collective, sorted(set(COLLECTIVES.values())), "--collective"
        )
    for candidate in (options.collective, named, path.stem):
        for name, collective in COLLECTIVES.items():
            if name in candidate.lower():
                return collective
    if otherwise:
        return otherwise
    listed = ", ".join(dict.fromkeys(COLLECTIVES.values()))
    raise InputError(
        f"does not say which collective it measured; name it with --collective: {listed}", str(path)
    )


def _implied(cells: list[str], time_column: int, ranks: int) -> str:
    """The collective that ``redop``, ``algbw`` and ``busbw`` of a row of results imply, or none."""
    try:
        added = cells[3].lower() not in ("none", "")
        algorithm, bus = float(cells[time_column + 1]), float(cells[time_column + 2])
    except (IndexError, ValueError):
        return ""
    if not added or ranks < 3 or not algorithm > 0.0:  # of two ranks a sum over one half has the same factor
        return ""
    factors = {name: factor(ranks) for name, factor in SUMMED.items()}
    matches = [
        name for name, factor in factors.items() if abs(bus / algorithm / factor - 1.0) < BUS_TOLERANCE
    ]
    return matches[0] if len(matches) == 1 else ""


def _version(number: int) -> str:
    """2.27.7 from NCCL's 22707 (or 2804 of the years before 2.9)."""
    base = 10000 if number >= 10000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


def _read_log(path: Path, text: str, options: ImportOptions) -> Iterator[TablePoint]:
    run: _Run | None = None
    ranks: list[tuple[str, str, str]] = []
    named, version, library, time_column = "", "unknown", "nccl", 5
    for number, labelled in enumerate(text.splitlines(), start=1):
        line = unlabelled(labelled)
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
        if match := RCCL.match(line):
            version, library = match[1], "rccl"
            continue
        if match := COMMAND.search(line):
            named, run = match[1], None
            continue
        cells = line.split()
        if len(cells) < 8 or not cells[0].isdigit() or not cells[1].isdigit():
            continue
        if run is None:
            if not ranks:
                raise InputError(f"line {number}: no 'Rank' lines before the first result", str(path))
            members = [rank for rank in ranks if rank[0] == ranks[0][0]]
            hosts = {host for _, host, _ in members}
            implied = _implied(cells, time_column, len(members))
            collective = _collective(named, path, options, implied)
            run = _Run(collective, ranks[0][2], len(members), len(hosts), version, library)
        if len(cells) <= time_column:
            raise InputError(
                f"line {number}: no column time in {shown(line.strip())}; is the log cut off?", str(path)
            )
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


def _read_records(path: Path, text: str, options: ImportOptions) -> Iterator[TablePoint]:
    """The list of records of rccl-tests (``-Z json``), which name neither device nor release."""
    records = parsed_json(f'{{"records": {text}}}', path)["records"]
    system = options.system or options.gpu
    if not system:
        raise InputError("names no device: give --gpu", str(path))
    for index, record in enumerate(records if isinstance(records, list) else []):
        where = f"record {index}"
        try:
            if int(record["inPlace"]):
                continue
            counts = int(record["ranks"]), int(record["nodes"])
            size, kind, name = int(record["size"]), str(record["type"]), str(record["name"])
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{where}: is no record of rccl-tests (missing or wrong: {error})"
            raise InputError(problem, str(path)) from None
        run = _Run(_collective(name, path, options), system, *counts, "unknown", "rccl")
        yield run.row(size, kind, _time(record.get("time", ""), path, f"{where}, time"), options)


def _time(value: str | float, path: Path, where: str) -> float:
    try:
        time_us = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: a time in microseconds is needed, found {value!r}", str(path)) from None
    if not 0 <= time_us < LONGEST_US:
        raise InputError(f"{where}: a time from 0 to an hour is needed, found {value!r}", str(path))
    return time_us


NCCL_TESTS = Importer("nccl-tests", "logs of nccl-tests and rccl-tests, text or JSON", _recognises, _read)
