"""One replication of a run as a Chrome trace for Perfetto: the states of the job over its wall time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from core.files import atomic_write
from planner.runs import PlannedRun
from simulator.runs.events import replicate


def write_run_trace(path: Path, run: PlannedRun, number: int = 0) -> None:
    """Write the segments of a replication; the same run gives the same bytes.

    Args:
        path: FILE.json or FILE.json.gz; it appears only when it is complete.
        run: the run.
        number: of the replication.

    Raises:
        InputError: the file cannot be written.
    """
    replication = replicate(run.outcome.inputs, run.case.request.question.seed, number, traced=True)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": f"replication {number}"}}
    ]
    threads = {"productive": 0}
    for state, start, end in replication.segments:
        thread = threads.setdefault(state, len(threads))
        events.append(
            {"ph": "X", "name": state, "cat": "run", "pid": 0, "tid": thread, "ts": start * 1e6}
            | {"dur": (end - start) * 1e6}
        )
    events += [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": state}}
        for state, thread in threads.items()
    ]
    data = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
