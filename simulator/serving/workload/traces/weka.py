"""Weka: sessions of coding agents as trees of requests, with hashes of prompt blocks and the clients' waits.

A file, or each line of a ``.jsonl`` file, holds one session: ``requests`` with normal and streamed calls
(``n``, ``s``) and entries of sub-agents (``subagent``), which have calls of their own. Sub-agents run side by
side after the call above them; the call below them waits for all. Wherever a session runs, one call follows
the other's answer after ``think_time``, or else after the recorded distance of their times less the recorded
``api_time``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import InputError, shown, shown_path
from simulator.serving.workload.traces.base import (
    RecordedAgent,
    RecordedCall,
    RecordedSession,
    TraceFormat,
    TraceRow,
    json_rows,
    number,
    opened,
    parsed,
)
from simulator.serving.workload.traces.mooncake import hashes

BLOCK = 64
"""Tokens of a hash; files with another ``block_size`` are refused."""
CALLS = "n", "s"
AGENT = "subagent"
DEEPEST = 8
"""Sub-agents inside of each other."""
Entry = Mapping[str, Any]


def _sessions(path: Path) -> Iterator[RecordedSession]:
    """The sessions of a file, of a folder's files in order of their names.

    Raises:
        InputError: a folder without files, or a file that is no session.
    """
    if not path.is_dir():
        yield from _of_file(path)
        return
    files = sorted(file for file in path.iterdir() if file.name.endswith((".json", ".json.gz", ".jsonl")))
    if not files:
        raise InputError("holds no .json or .jsonl files", shown_path(path))
    for file in files:
        yield from _of_file(file)


def _of_file(path: Path) -> Iterator[RecordedSession]:
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        yield from (_session(cells, where) for where, cells in json_rows(path))
        return
    with opened(path) as file:
        document = parsed(file.read(), shown_path(path))
    if not isinstance(document, dict):
        raise InputError(f"a JSON object is needed, found {shown(json.dumps(document))}", shown_path(path))
    yield _session(document, shown_path(path))


def _session(cells: Entry, where: str) -> RecordedSession:
    size = number(cells, "block_size", where, int, 1)
    if size != BLOCK:
        raise InputError(f"key 'block_size': hashes of {BLOCK} tokens are read, found {size}", where)
    scope = cells.get("hash_id_scope", "local")
    if scope not in ("local", "global"):
        raise InputError(f"key 'hash_id_scope': local or global is needed, found {shown(scope)}", where)
    return RecordedSession(_calls(_entries(cells, where), where), scope == "global")


def _entries(cells: Entry, where: str) -> list[Entry]:
    entries = cells.get("requests")
    if not isinstance(entries, list) or not entries or not all(isinstance(item, dict) for item in entries):
        raise InputError(f"key 'requests': a list of objects is needed, found {shown(str(entries))}", where)
    return entries


def _calls(entries: Sequence[Entry], where: str, depth: int = 0) -> tuple[RecordedCall, ...]:
    """The calls of one agent, each with the sub-agents that start after it.

    Raises:
        InputError: a sub-agent above all calls, one too deep, an unknown type, or a wrong number.
    """
    calls: list[RecordedCall] = []
    above: Entry = {}
    for place, entry in enumerate(entries):
        at = f"{where}: requests[{place}]"
        kind = entry.get("type")
        if kind in CALLS:
            calls.append(_call(entry, above, at))
            above = entry
        elif kind != AGENT:
            raise InputError(f"key 'type': n, s or subagent is needed, found {shown(str(kind))}", at)
        elif not calls:
            raise InputError("is a sub-agent that no call starts: none stands above it; remove the entry", at)
        elif depth == DEEPEST:
            raise InputError(f"is a sub-agent more than {DEEPEST} deep", at)
        else:
            inner = _entries(entry, at)
            agent = RecordedAgent(_start(entry, inner, above, at), _calls(inner, at, depth + 1))
            calls[-1] = calls[-1]._replace(agents=(*calls[-1].agents, agent))
    return tuple(_with_outputs(calls))


def _call(entry: Entry, above: Entry, where: str) -> RecordedCall:
    prompt, output = number(entry, "in", where, int, 1), number(entry, "out", where, int, 1)
    ids = hashes(entry, prompt, BLOCK, where)
    return RecordedCall(_wait(entry, above, where), prompt, output, ids, where=where)


def _wait(entry: Entry, above: Entry, where: str) -> float:
    """Seconds from the answer of the call above to this call."""
    if not above:
        return 0.0
    if entry.get("think_time") is not None:
        return number(entry, "think_time", where, float, 0.0)
    return max(number(entry, "t", where, float, 0.0) - _end(above, where), 0.0)


def _end(entry: Entry, where: str) -> float:
    """Recorded time of an answer."""
    served = number(entry, "api_time", where, float, 0.0) if entry.get("api_time") is not None else 0.0
    return number(entry, "t", where, float, 0.0) + served


def _start(entry: Entry, inner: Sequence[Entry], above: Entry, where: str) -> float:
    """Seconds from the answer of the call above to a sub-agent's first call.

    Times inside are those of the session, or count from the sub-agent's own.
    """
    begin = number(entry, "t", where, float, 0.0)
    first = number(inner[0], "t", f"{where}.requests[0]", float, 0.0)
    return max((first if first >= begin else begin + first) - _end(above, where), 0.0)


def _with_outputs(calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """The calls, with the ids of outputs that the next call's prompt repeats."""
    for call, following in zip(calls, [*calls[1:], None], strict=True):
        prefix_blocks = len(call.prefix)
        if following is None or following.prefix[:prefix_blocks] != call.prefix:
            yield call
        else:
            repeated = max((call.prompt + call.output) // BLOCK, prefix_blocks)
            yield call._replace(prefix=following.prefix[:repeated])


def _rows(calls: Sequence[RecordedCall]) -> Iterator[TraceRow]:
    for call in calls:
        yield TraceRow(float("nan"), call.prompt, call.output, call.prefix, call.where)
        for agent in call.agents:
            yield from _rows(agent.calls)


def _read(path: Path) -> Iterator[TraceRow]:
    for session in _sessions(path):
        yield from _rows(session.calls)


FORMAT = TraceFormat(
    "weka",
    "block_size, requests (type, in, out, hash_ids; t or think_time)",
    "github.com/callanjfox/kv-cache-tester, docs/trace_replay_tester.md; AIPerf's AgentX replays it",
    _read,
    timed=False,
    prefix_tokens=BLOCK,
    sessions=_sessions,
)
