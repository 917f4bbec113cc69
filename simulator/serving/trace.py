"""Serving runs as Chrome traces for Perfetto: replicas are processes, steps slices, occupancy counters."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.files import atomic_write
from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member

Event = dict[str, Any]


def write_serving_trace(path: Path, fleet: Fleet) -> None:
    """Write the steps of a traced run, compressed if the name ends in ``.gz``; same run, same bytes.

    Raises:
        InputError: the file cannot be written.
    """
    document = {"traceEvents": [event for member in fleet.members for event in _events(member)]}
    document["traceEvents"] += list(_copies(fleet))
    data = json.dumps(document | {"displayTimeUnit": "ms"}, separators=(",", ":")).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def _copies(fleet: Fleet) -> Iterator[Event]:
    """Copies of moves, on a lane of the replica that they leave."""
    if fleet.moves is None:
        return
    copies = fleet.moves.counts.lanes
    for source in sorted({copy[0] for copy in copies}):
        yield {"ph": "M", "name": "thread_name", "args": {"name": "copies"}, "pid": source, "tid": 1}
    for source, begin, seconds, tokens in copies:
        place = {"pid": source, "tid": 1, "ts": begin * 1e6, "dur": seconds * 1e6}
        yield {"ph": "X", "name": "move", "cat": "copy", "args": {"KV tokens": tokens}, **place}


def _events(member: Member) -> Iterator[Event]:
    """Times in microseconds; stretches of equal decode steps are one slice."""
    process = {"pid": member.index, "tid": 0}
    name = f"replica {member.index} ({member.pool.name})"
    yield {"ph": "M", "name": "process_name", "args": {"name": name}, **process}
    for stretch in member.meter.slices:
        prompt, decodes = stretch.prompt_tokens, stretch.decodes
        kind = "mixed" if prompt and decodes else "prefill" if prompt else "decode"
        title = kind if stretch.steps == 1 else f"{kind} x {stretch.steps}"
        what = {"decodes": decodes, "prompt tokens": prompt, "steps": stretch.steps}
        start = stretch.start_s * 1e6
        yield {
            "ph": "X",
            "name": title,
            "cat": kind,
            "ts": start,
            "dur": stretch.seconds * 1e6,
            "args": what,
            **process,
        }
        yield {
            "ph": "C",
            "name": "sequences",
            "ts": start,
            "args": {"running": stretch.running, "waiting": stretch.waiting},
            **process,
        }
        yield {"ph": "C", "name": "KV blocks", "ts": start, "args": {"used": stretch.kv_blocks}, **process}
