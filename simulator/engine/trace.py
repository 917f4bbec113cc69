"""Timelines as Chrome traces, for Perfetto and Holistic Trace Analysis.

Ranks are processes, streams threads; memory and link use are counters. Keys follow the JSON that PyTorch's
profiler writes: times in microseconds, ``cat`` "kernel", ``args`` with stream, device and correlation,
collectives named ``nccl...``, one ``ProfilerStep`` annotation, ``distributedInfo``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core.files import atomic_write
from simulator.engine.graph import Lane, Stream
from simulator.engine.timeline import Timeline

Event = dict[str, Any]
Moved = tuple[int, str, float]
"""Task, level of the topology, bytes."""
Segment = tuple[str, str, str, float, float]
"""Category, name, thread, start and end, s."""

MEMCPY = {"copy out": "DtoH", "copy in": "HtoD"}
"""Directions of copies, as CUPTI names them."""


def write_trace(timeline: Timeline, path: Path, ranks: Iterable[int] | None = None, step: int = 0) -> None:
    """Write a trace as JSON, compressed if the name ends in ``.gz``; the same timeline gives the same bytes.

    Args:
        timeline: the run.
        path: the file; it appears only when it is complete.
        ranks: simulated ranks to write; all by default. Holistic Trace Analysis wants one file a rank.
        step: number of the step, for its annotation.

    Raises:
        InputError: the file cannot be written.
    """
    drawn = list(range(timeline.ranks) if ranks is None else ranks)
    document = {
        "traceEvents": list(trace_events(timeline, drawn, step)),
        "displayTimeUnit": "ms",
        "distributedInfo": {
            "backend": "nccl",
            "rank": drawn[0] if drawn else 0,
            "world_size": timeline.ranks,
        },
    }
    # Holistic Trace Analysis finds the rank by a pattern that requires a space after the colon.
    _write(path, json.dumps(document, separators=(",", ": ")))


def write_threads(
    path: Path, threads: Mapping[str, int], segments: Iterable[Segment], process: str = ""
) -> None:
    """Write what threads of one process do over time; the same segments give the same bytes.

    Args:
        path: FILE.json or FILE.json.gz; it appears only when it is complete.
        threads: numbers of the threads by name.
        segments: in the order of the file.
        process: its name; empty: none.

    Raises:
        InputError: the file cannot be written.
    """
    heads = [_named("process_name", 0, 0, process)] if process else []
    heads += [_named("thread_name", 0, thread, name) for name, thread in threads.items()]
    events = [
        {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": threads[thread]}
        | {"ts": start * 1e6, "dur": (end - start) * 1e6}
        for category, name, thread, start, end in segments
    ]
    document = {"traceEvents": [*heads, *events], "displayTimeUnit": "ms"}
    _write(path, json.dumps(document, separators=(",", ":")))


def _write(path: Path, document: str) -> None:
    data = document.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def trace_events(timeline: Timeline, ranks: Iterable[int], step: int = 0) -> Iterator[Event]:
    """The events of some ranks, rank by rank and stream by stream."""
    traffic: dict[int, list[Moved]] = {}
    for task, sent in timeline.graph.traffic.items():
        rank = timeline.graph.lanes[timeline.graph.lane[task]].rank
        traffic.setdefault(rank, []).extend((task, level, size) for level, size in sent)
    for rank in ranks:
        flows = traffic.get(rank, [])
        yield _named("process_name", rank, 0, f"rank {rank}")
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
        yield _named("thread_name", rank, len(timeline.streams), "steps")
        yield from _step(timeline, rank, step)
        for lane in timeline.graph.lanes:
            if lane.rank == rank:
                yield _named("thread_name", rank, timeline.streams.index(lane.stream), lane.stream.name)
                yield from _tasks(timeline, lane)
        yield from _memory(timeline, rank)
        yield from _links(timeline, rank, flows)


def _named(what: str, rank: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": {"name": name}}


def _step(timeline: Timeline, rank: int, step: int) -> Iterator[Event]:
    yield {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{step}",
        "pid": rank,
        "tid": len(timeline.streams),
        "ts": 0.0,
        "dur": _microseconds(timeline.seconds),
        "args": {},
    }


def _tasks(timeline: Timeline, lane: Lane) -> Iterator[Event]:
    graph, stream = timeline.graph, timeline.streams.index(lane.stream)
    for task in timeline.tasks(lane.rank, lane.stream).tolist():
        args: Event = {"stream": stream, "device": lane.rank, "correlation": task}
        if (number := timeline.number(task)) >= 0:
            args[graph.counted] = number
        if task in graph.traffic:
            args["bytes"] = dict(graph.traffic[task])
        start = _microseconds(float(timeline.starts[task]))
        yield {
            "ph": "X",
            "cat": "gpu_memcpy" if lane.stream.does in MEMCPY else "kernel",
            "name": _kernel_name(lane.stream, graph.name[task]),
            "pid": lane.rank,
            "tid": stream,
            "ts": start,
            "dur": round(_microseconds(float(timeline.ends[task])) - start, 3),
            "args": args,
        }


def _kernel_name(stream: Stream, name: str) -> str:
    """Names by which trace readers distinguish communication, copies and computation."""
    if stream.does == "compute":
        return name
    if stream.does in MEMCPY:
        return f"Memcpy {MEMCPY[stream.does]} ({name})"
    return f"ncclDevKernel_{name}"


def _memory(timeline: Timeline, rank: int) -> Iterator[Event]:
    times, allocated = timeline.memory(rank)
    # Of several changes at one instant the last one counts.
    last = np.append(np.diff(times) > 0, True)
    for time, size in zip(times[last].tolist(), allocated[last].tolist(), strict=True):
        yield {
            "ph": "C",
            "name": "memory",
            "pid": rank,
            "tid": 0,
            "ts": _microseconds(time),
            "args": {"bytes": round(size)},
        }


def _links(timeline: Timeline, rank: int, traffic: list[Moved]) -> Iterator[Event]:
    """Bytes per second that the rank's tasks move over each level, each task at its mean rate."""
    changes: dict[str, dict[float, float]] = {}
    for task, level, size in traffic:
        start, end = float(timeline.starts[task]), float(timeline.ends[task])
        if end <= start:
            continue
        rate = size / (end - start)
        at = changes.setdefault(level, {})
        at[start] = at.get(start, 0.0) + rate
        at[end] = at.get(end, 0.0) - rate
    for level in sorted(changes):
        rate = 0.0
        for time in sorted(changes[level]):
            rate += changes[level][time]
            yield {
                "ph": "C",
                "name": f"{level} bytes/s",
                "pid": rank,
                "tid": 0,
                "ts": _microseconds(time),
                "args": {"bytes/s": max(round(rate), 0)},
            }


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
