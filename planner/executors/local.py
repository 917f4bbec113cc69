"""Spreading independent work over the cores of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any, TypeVar

Result = TypeVar("Result")

WORTH_SHARING_S = 5.0
"""Seconds of work from which starting further processes pays."""
AHEAD = 2
"""Calls handed out per process: one at work, one waiting."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int
) -> Iterator[tuple[int, Result]]:
    """Call a function many times.

    Args:
        function: importable by name, as its arguments and results travel between processes.
        calls: the arguments of each call; taken as they are needed.
        workers: processes; with 1, all calls are made in this one.

    Yields:
        The number of a call and its result, in the order in which calls end.
    """
    if workers <= 1:
        for number, call in enumerate(calls):
            yield number, function(*call)
        return
    # A new interpreter in each process: forking one that has threads may block it for ever.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_end_with_the_terminal)
    waiting: dict[Future[Result], int] = {}
    try:
        for number, call in enumerate(calls):
            waiting[pool.submit(function, *call)] = number
            if len(waiting) >= AHEAD * workers:
                yield from _ended(waiting)
        while waiting:
            yield from _ended(waiting)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ended(waiting: dict[Future[Result], int]) -> Iterator[tuple[int, Result]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        yield waiting.pop(future), future.result()


def _end_with_the_terminal() -> None:
    """Let Ctrl-C end a process at once, without a traceback; the first process reports."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
