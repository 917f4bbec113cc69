"""One process a question, with limits: a request that takes too long is ended, and its memory is gone."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import tempfile
from multiprocessing.connection import Connection
from typing import Any

from core.errors import InputError

MOST_SECONDS = 60.0
MOST_MEMORY, MOST_FILE = 12 * 2**30, 64 * 2**20
"""Address space of a question, and the largest file that it may write (pages are below 8 MiB), B."""
AT_ONCE, WAITING = 2, 32
"""Questions that run, and that wait for their turn."""
OK, REFUSED, FAULT = "ok", "refused", "fault"


class Busy(Exception):
    """Too many questions wait."""


class TooLong(Exception):
    """A question took longer than it may."""


class Workers:
    """Runs questions in processes of their own, some at a time.

    Args:
        at_once: processes at the same time.
        waiting: questions that wait at most.
        seconds: of a question at most.
    """

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, seconds: float = MOST_SECONDS) -> None:
        self._turns, self._most, self._seconds = asyncio.Semaphore(at_once), at_once + waiting, seconds
        self._inside = 0
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["meshwright.service.answers", "meshwright.api.training"])

    async def answer(self, kind: str, body: Any, page: bool = True) -> dict[str, Any]:
        """The answer of a question.

        Raises:
            InputError: a wrong question.
            Busy: too many wait.
            TooLong: it took longer than ``seconds``.
            RuntimeError: the process ended without an answer.
        """
        if self._inside >= self._most:
            raise Busy
        self._inside += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(self._run, kind, body, page)
        finally:
            self._inside -= 1

    def _run(self, kind: str, body: Any, page: bool) -> dict[str, Any]:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(theirs, kind, body, page), daemon=True)
        process.start()
        theirs.close()
        try:
            if not ours.poll(self._seconds):
                raise TooLong
            try:
                state, value = ours.recv()
            except EOFError:
                raise RuntimeError("a question ended without an answer") from None
        finally:
            process.kill()
            process.join()
            ours.close()
        if state == REFUSED:
            raise InputError(*value)
        if state == FAULT:
            raise RuntimeError(value)
        return value


def _work(out: Connection, kind: str, body: Any, page: bool) -> None:
    """Answer one question in an empty folder."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        os.chdir(folder)
        from meshwright.service.answers import answered

        try:
            out.send((OK, answered(kind, body, page)))
        except InputError as error:
            out.send((REFUSED, (error.problem, error.where)))
        except Exception as error:
            out.send((FAULT, f"{type(error).__name__}: {error}"[:500]))
        os.chdir("/")
