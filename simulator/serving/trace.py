"""Serving runs as Chrome traces for Perfetto: replicas are processes, steps slices, occupancy counters."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwmodels.files import atomic_write
from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member

Event = dict[str, Any]


def write_serving_trace(path: Path, fleet: Fleet) -> None:
    """Write the steps of a traced run, compressed if the name ends in ``.gz``; same run, same bytes.

    Raises:
        InputError: the file cannot be written.
    """
    document = {"traceEvents": [event for member in fleet.members for event in _events(member)]}
    data = json.dumps(document | {"displayTimeUnit": "ms"}, separators=(",", ":")).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def _events(member: Member) -> Iterator[Event]:
    """Times in microseconds; stretches of equal decode steps are one slice."""
    process = {"pid": member.index, "tid": 0}
    name = f"replica {member.index} ({member.pool.name})"
    yield {"ph": "M", "name": "process_name", "args": {"name": name}, **process}
    for one in member.meter.slices:
        prompt, decodes = one.prompt_tokens, one.decodes
        kind = "mixed" if prompt and decodes else "prefill" if prompt else "decode"
        title = kind if one.steps == 1 else f"{kind} x {one.steps}"
        what = {"decodes": decodes, "prompt tokens": prompt, "steps": one.steps}
        start = one.start_s * 1e6
        yield {
            "ph": "X",
            "name": title,
            "cat": kind,
            "ts": start,
            "dur": one.seconds * 1e6,
            "args": what,
            **process,
        }
        yield {
            "ph": "C",
            "name": "sequences",
            "ts": start,
            "args": {"running": one.running, "waiting": one.waiting},
            **process,
        }
        yield {"ph": "C", "name": "KV blocks", "ts": start, "args": {"used": one.kv_blocks}, **process}
