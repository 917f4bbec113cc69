"""A step of post-training as a Chrome trace for Perfetto: one thread a role."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from core.files import atomic_write
from simulator.rl.step import RlStep, step_lanes

STEPS = 3
"""Steps of the steady state that a trace holds."""


def write_rl_trace(path: Path, step: RlStep) -> None:
    """Write some steps; the same step gives the same bytes.

    Args:
        path: FILE.json or FILE.json.gz; it appears only when it is complete.
        step: predicted.

    Raises:
        InputError: the file cannot be written.
    """
    segments = step_lanes(step)
    threads = {lane: number for number, lane in enumerate(dict.fromkeys(each.lane for each in segments))}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": lane}}
        for lane, thread in threads.items()
    ]
    for number in range(STEPS):
        begin = number * step.timing.seconds
        events += [
            {"ph": "X", "name": each.phase, "cat": "rl", "pid": 0, "tid": threads[each.lane]}
            | {"ts": (begin + each.start) * 1e6, "dur": (each.end - each.start) * 1e6}
            for each in segments
            if each.phase != "idle"
        ]
    data = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
