"""Atomic writes: a file, or several together, appear complete or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from hwmodels.errors import InputError, shown_path

Pending = list[tuple[Path, Path, list[Path]]]
"""Files written under a temporary name, the name that each is to take, and the folders made for it."""

_pending: ContextVar[Pending | None] = ContextVar("pending", default=None)


@contextmanager
def written_together() -> Iterator[None]:
    """Hold back the files written in the block until it ends well; after an error none of them appears.

    Raises:
        InputError: one cannot be put in its place.
    """
    if _pending.get() is not None:
        yield
        return
    pending: Pending = []
    token = _pending.set(pending)
    try:
        yield
        while pending:
            temporary, target, _ = pending[0]
            try:
                temporary.replace(target)
            except OSError as error:
                raise InputError(f"cannot be written ({error.strerror})", shown_path(target)) from None
            del pending[0]
    finally:
        _pending.reset(token)
        for temporary, _, made in reversed(pending):
            _remove(temporary, made)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the name to write a file under; it takes its own name, beside it, when the block ends well.

    Folders are made for it. Of a link, the file that it leads to is replaced; a device or a pipe is written
    directly.

    Raises:
        InputError: it cannot be written; the part that was written is removed, with folders made for it.
    """
    target = _target(path)
    try:
        if target.exists() and not target.is_file():
            yield target
            return
        if target.parent.exists() and not target.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        made = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{os.getpid()}.{target.name}")
        pending = _pending.get()
        try:
            yield temporary
            if pending is None:
                temporary.replace(target)
            else:
                pending.append((temporary, target, made))
        except BaseException:
            _remove(temporary, made)
            raise
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", shown_path(path)) from None


def _target(path: Path) -> Path:
    """The file that a path, perhaps of a link, means.

    Raises:
        InputError: a link that leads to itself, or a NUL character.
    """
    try:
        return path.resolve()
    except RuntimeError:
        raise InputError("cannot be written (a link that leads to itself)", shown_path(path)) from None
    except (ValueError, OSError) as error:
        raise InputError(f"cannot be written ({error})", shown_path(path)) from None


def _remove(temporary: Path, made: list[Path]) -> None:
    temporary.unlink(missing_ok=True)
    for folder in made:
        with suppress(OSError):
            folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file whole.

    Raises:
        InputError: it cannot be written; the part that was written is removed.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters by which a spreadsheet takes a cell for a formula."""


def plain_cell(text: str) -> str:
    """Text for a cell of a CSV file that no spreadsheet runs as a formula."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULAS) else text


def read_cell(text: str) -> str:
    """The text of a cell that ``plain_cell`` wrote."""
    return text[1:] if text[:1] == "'" and text.lstrip("'").startswith(FORMULAS) else text
