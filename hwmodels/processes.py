"""Process lifetime: signals clean up before they end the process, and workers end with their parent."""

from __future__ import annotations

import os
import signal
import threading

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals of `kill`, `timeout`, Slurm and a closed terminal."""


def clean_up_on_signals() -> None:
    """Treat terminating signals as Ctrl-C: files and workers are cleaned up.

    A signal that is ignored (``nohup``) stays ignored.
    """
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


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
