"""Process lifetime: signals clean up before they end the process, and workers end with their parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals of `kill`, `timeout`, Slurm and a closed terminal."""
AGAIN_S = 0.01
"""Delay after which an interruption that Python ignored is raised again, s."""

_holders, _pending = 0, False
"""Number of active blocks that hold interruptions, and whether a signal arrived in any of them."""


def _interrupt(*_: object) -> None:
    global _pending
    if _holders:
        _pending = True
        return
    raise KeyboardInterrupt


@contextmanager
def interruptions_held() -> Iterator[None]:
    """Delay interruptions by a signal to the end of the block."""
    global _holders, _pending
    _holders += 1
    try:
        yield
    finally:
        _holders -= 1
        if _pending and not _holders:
            _pending = False
            raise KeyboardInterrupt


@contextmanager
def clean_up_on_signals() -> Iterator[None]:
    """Treat terminating signals as Ctrl-C within the block: files and workers are cleaned up.

    A signal that is ignored (``nohup``) stays ignored. An interruption inside a destructor or a weak
    reference's callback, where Python ignores every exception, is raised again.
    """
    taken = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGINT)}
    usual = (signal.SIG_DFL, signal.default_int_handler)
    taken = {number: handler for number, handler in taken.items() if handler in usual}
    hook = sys.unraisablehook

    def ignored(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)
        elif hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, _interrupt)
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    sys.unraisablehook = ignored
    for number in taken:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        # Python's shutdown from here on has nothing to clean up.
        for number, handler in taken.items():
            signal.signal(number, handler)


def end_with_parent() -> None:
    """End this worker as soon as its parent ends for any reason."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    from multiprocessing.connection import wait

    wait([sentinel])
    os._exit(1)
