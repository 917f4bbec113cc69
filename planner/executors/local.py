"""Spreading independent work over the cores of this machine."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from core.errors import MeshwrightError
from core.processes import end_with_parent, interruptions_held

Result = TypeVar("Result")

AHEAD = 2
"""Calls submitted per process: one running, one queued."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Call a function many times.

    Args:
        function: importable by name, as its arguments and results travel between processes.
        calls: the arguments of each call; taken as they are needed.
        workers: processes, None for all cores; with 1, all calls are made in this process.

    Yields:
        The number of a call and its result, in the order in which calls end.

    Raises:
        MeshwrightError: a worker was killed.
    """
    workers = workers or cores()
    if workers <= 1:
        for number, call in enumerate(calls):
            yield number, function(*call)
        return
    # A new interpreter in each process: forking one that has threads may block it for ever.
    before = set(active_children())
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare_worker)
    waiting: dict[Future[Result], int] = {}
    try:
        for number, call in enumerate(calls):
            with interruptions_held():  # a worker whose start is cut short prints a traceback
                waiting[pool.submit(function, *call)] = number
            if len(waiting) >= AHEAD * workers:
                yield from _ended(waiting)
        while waiting:
            yield from _ended(waiting)
    except BrokenProcessPool:
        problem = "a worker process ended early: out of memory, killed, or started by a script without "
        raise MeshwrightError(problem + "`if __name__ == '__main__':`") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if waiting:  # workers still compute a result that nobody waits for
            for worker in set(active_children()) - before:
                worker.terminate()


def _ended(waiting: dict[Future[Result], int]) -> Iterator[tuple[int, Result]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        yield waiting.pop(future), future.result()


def _prepare_worker() -> None:
    """End at once, without a traceback, on signals and with the first process, which reports."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    end_with_parent()
    # Sentences of ours were said by the parent, which read the question; those of libraries say nothing.
    warnings.simplefilter("ignore")
