"""Independent calls on local cores or a Ray cluster, with their results in a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.executors import check, executor

if TYPE_CHECKING:
    from planner.store import Keyed, ResultStore

Result = Mapping[str, Any]
Call = tuple[Any, ...]

Pending = tuple[int, "Keyed"]
"""Number and question of a call without a result."""

WORTH_SHARING_S = 5.0
"""Minimum seconds of work for which further local processes start."""
CLAIMED = 8
"""Number of calls that a run claims together in a shared store."""
POLL_S = 0.5
"""Interval at which a run looks for results that another run computes."""


class Finished(NamedTuple):
    """Result of a call; ``stored`` is true where the store had it."""

    number: int
    result: Any
    stored: bool


@dataclass(frozen=True)
class Execution:
    """Where independent calls run, and the file that keeps their results.

    Attributes:
        executor: local or ray.
        address: address of a running Ray cluster, host:port; empty starts one on this machine.
        workers: maximum concurrent calls; None for all cores.
        store: SQLite file of finished results; None keeps nothing.
    """

    executor: str = "local"
    address: str = ""
    workers: int | None = None
    store: str | Path | None = None

    def check(self) -> int:
        """Refuse a wrong executor or store before work starts.

        Returns:
            Results in the store that another version of the program wrote, which this one does not use.

        Raises:
            InputError: an unknown executor, no Ray cluster at the address, or a file that is no store.
        """
        check(self.executor, self.address)
        if self.store is None or not Path(self.store).exists():
            return 0  # work that fails before its first result leaves no file
        from planner.store import ResultStore

        with ResultStore(Path(self.store)) as store:
            return store.others()

    def run(
        self,
        function: Callable[..., Result],
        calls: Sequence[Call],
        question: Callable[..., Mapping[str, Any]],
        expected_s: float | None = None,
    ) -> Iterator[Finished]:
        """Call a function many times; every result is stored before it is yielded.

        Args:
            function: importable by name; its arguments are pickled, its results are JSON mappings.
            calls: arguments of each call.
            question: inputs of a call's result, as JSON, from the same arguments; the key in the store.
            expected_s: estimated seconds of all calls; None to time the first call in this process.

        Yields:
            Stored results in order, then the others in the order in which they finish.

        Raises:
            InputError: the file is no store, or no Ray cluster answers at the address.
            MeshwrightError: a worker was killed, or the disk is full.
        """
        if self.store is None:
            results = self._compute(function, calls, len(calls), expected_s)
            yield from (Finished(number, result, False) for number, result in results)
            return
        from planner.store import GROUP, Keyed, ResultStore

        with ResultStore(Path(self.store)) as store:
            pending: list[Pending] = []
            for start in range(0, len(calls), GROUP):
                keyed = [Keyed.of(question(*call)) for call in calls[start : start + GROUP]]
                rows = store.get([entry.key for entry in keyed])
                for number, entry in enumerate(keyed, start):
                    if entry.key in rows:
                        yield Finished(number, rows[entry.key], True)
                    else:
                        pending.append((number, entry))
            while pending:
                shared = _Shared(store, pending)
                mine = (calls[number] for number in shared.claimed())
                for place, result in self._compute(function, mine, len(pending), expected_s):
                    number, keyed = shared.mine[place]
                    store.put(keyed, result)
                    yield Finished(number, result, False)
                yield from shared.stored
                if pending := shared.elsewhere:
                    time.sleep(POLL_S)

    def _compute(
        self, function: Callable[..., Result], calls: Any, count: int, expected_s: float | None
    ) -> Iterator[tuple[int, Result]]:
        """Results of calls by number; a local run starts further processes only where that pays."""
        calls, workers = iter(calls), self.workers
        started, first = time.perf_counter(), next(calls, None)
        if first is None:
            return
        if self.executor != "local" or workers == 1 or expected_s is not None:
            calls, done = chain([first], calls), 0
        else:
            yield 0, function(*first)
            expected_s, done = (time.perf_counter() - started) * (count - 1), 1
        if self.executor == "local" and expected_s is not None and expected_s < WORTH_SHARING_S:
            workers = 1
        for number, result in executor(self.executor, self.address)(function, calls, workers):
            yield done + number, result


class _Shared:
    """A pass over pending calls of a shared store."""

    def __init__(self, store: ResultStore, pending: Sequence[Pending]) -> None:
        self.store, self.pending = store, pending
        self.mine: list[Pending] = []
        """Calls claimed by this run, in order."""
        self.stored: list[Finished] = []
        """Calls whose results another run has stored meanwhile."""
        self.elsewhere: list[Pending] = []
        """Calls that another run computes."""

    def claimed(self) -> Iterator[int]:
        """Numbers of the calls to compute here, claimed as they are taken."""
        for start in range(0, len(self.pending), CLAIMED):
            group = self.pending[start : start + CLAIMED]
            mine = self.store.claim([keyed.key for _, keyed in group])
            others = [keyed.key for _, keyed in group if keyed.key not in mine]
            rows = self.store.get(others) if others else {}
            for number, keyed in group:
                if keyed.key in mine:
                    self.mine.append((number, keyed))
                    yield number
                elif keyed.key in rows:
                    self.stored.append(Finished(number, rows[keyed.key], True))
                else:
                    self.elsewhere.append((number, keyed))
