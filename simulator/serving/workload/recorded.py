"""Recorded sessions of agents as programs: who waits for whom, and what prompts share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from simulator.serving.workload.programs.base import Call, Calls, Fresh
from simulator.serving.workload.traces.base import RecordedCall, RecordedSession


class SessionPlay:
    """One session's calls, its block ids made those of this play.

    Args:
        fresh: makes prefix ids.
        ids: of this play's blocks by recorded id; sessions of one name space share it.
        longest_wait: of a client between an answer and its next call, s.
    """

    def __init__(self, fresh: Fresh, ids: dict[int, int], longest_wait: float) -> None:
        self._fresh, self._ids, self._longest = fresh, ids, longest_wait

    def calls(self, recorded: tuple[RecordedCall, ...], start_s: float = 0.0) -> Calls:
        """The requests of one agent: each waits for the answer before it and the sub-agents that it started.

        Args:
            recorded: its calls.
            start_s: seconds from now to the first.
        """
        for place, call in enumerate(recorded):
            wait = start_s if place == 0 else call.wait_s
            yield [Call(min(wait, self._longest), call.prompt, call.output, self._known(call.prefix))]
            if call.agents:
                yield [self._branch(agent.calls, agent.start_s) for agent in call.agents]

    def _branch(self, recorded: tuple[RecordedCall, ...], start_s: float) -> Call:
        then = self.calls(recorded, start_s)
        return next(then)[0]._replace(then=then)

    def _known(self, recorded: tuple[int, ...]) -> tuple[int, ...]:
        ids, play_ids = self._ids, []
        for block in recorded:
            play_id = ids.get(block)
            if play_id is None:
                play_id = ids[block] = self._fresh(1)[0]
            play_ids.append(play_id)
        return tuple(play_ids)


def replayed(
    sessions: Callable[[Path], Iterator[RecordedSession]], path: Path, fresh: Fresh, longest_wait: float
) -> Iterator[Calls]:
    """Yield the sessions of a trace as programs, again and again; no pass knows the blocks of an earlier one.

    Args:
        sessions: reads them.
        path: file or folder.
        fresh: makes prefix ids.
        longest_wait: of a client between an answer and its next call, s.

    Raises:
        InputError: a session cannot be read.
    """
    while True:
        shared: dict[int, int] = {}
        for session in sessions(path):
            ids = shared if session.shared else {}
            yield SessionPlay(fresh, ids, longest_wait).calls(session.calls)
