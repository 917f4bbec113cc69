"""Atomic writes: a file, or several together, appear complete or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from core.errors import InputError, shown_path

MOST_UNNAMED = 100
"""Maximum number of unnamed open files; further files take a hidden name."""


@dataclass
class Written:
    """A file that is written before it takes its name.

    On Linux the file has no name until then, so a killed process leaves nothing; elsewhere it has a hidden
    name beside the target.

    Attributes:
        target: final name.
        temporary: hidden name; an unnamed file gets it just before the final name.
        new_folders: folders created for the file.
        descriptor: descriptor of the open unnamed file.
    """

    target: Path
    temporary: Path
    new_folders: list[Path]
    descriptor: int | None = None

    @property
    def path(self) -> Path:
        """Path to write to."""
        return self.temporary if self.descriptor is None else Path(f"/proc/self/fd/{self.descriptor}")

    def place(self) -> None:
        """Take the final name, replacing a file of that name.

        Raises:
            OSError: it cannot be taken.
        """
        if self.descriptor is not None:
            self.temporary.unlink(missing_ok=True)
            folder = os.open(self.target.parent, os.O_RDONLY)
            try:
                # With a folder's descriptor, Python asks the system to follow the link below /proc.
                os.link(self.path, self.temporary.name, dst_dir_fd=folder)
            finally:
                os.close(folder)
        self.temporary.replace(self.target)
        self._close()

    def remove(self) -> None:
        """Remove what was written, and the folders made for it."""
        self._close()
        self.temporary.unlink(missing_ok=True)
        for folder in self.new_folders:
            with suppress(OSError):
                folder.rmdir()

    def _close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


_pending: ContextVar[list[Written] | None] = ContextVar("pending", default=None)


@contextmanager
def written_together() -> Iterator[None]:
    """Commit all files written in the block when it succeeds; after an error none of them appears.

    Raises:
        InputError: a file cannot take its final name.
    """
    if _pending.get() is not None:
        yield
        return
    pending: list[Written] = []
    token = _pending.set(pending)
    try:
        yield
        while pending:
            try:
                pending[0].place()
            except OSError as error:
                where = shown_path(pending[0].target)
                raise InputError(f"cannot be written ({error.strerror})", where) from None
            del pending[0]
    finally:
        _pending.reset(token)
        for written in reversed(pending):
            written.remove()


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path to write a file to; it takes its final name when the block succeeds.

    Missing folders are made. For a link, its target is replaced; a device or a pipe is written directly.

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
        new_folders = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        pending = _pending.get()
        written = Written(target, target.with_name(f".{os.getpid()}.{target.name}"), new_folders)
        if len(pending or ()) < MOST_UNNAMED:
            written.descriptor = _unnamed(target.parent)
        try:
            yield written.path
            if pending is None:
                written.place()
            else:
                pending.append(written)
        except BaseException:
            written.remove()
            raise
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", shown_path(path)) from None


def _unnamed(folder: Path) -> int | None:
    """An open unnamed file in a folder; None where the system does not support unnamed files."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not Path("/proc/self/fd").exists():
        return None
    try:
        return os.open(folder, flag | os.O_RDWR, 0o666)
    except OSError:
        return None


def _target(path: Path) -> Path:
    """The file that a path points to, links followed.

    Raises:
        InputError: a link that leads to itself, or a NUL character.
    """
    try:
        return path.resolve()
    except RuntimeError:
        raise InputError("cannot be written (a link that leads to itself)", shown_path(path)) from None
    except (ValueError, OSError) as error:
        raise InputError(f"cannot be written ({error})", shown_path(path)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file whole.

    Raises:
        InputError: it cannot be written; the part that was written is removed.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that spreadsheets run as formulas."""


def plain_cell(text: str) -> str:
    """CSV cell text that no spreadsheet runs as a formula."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULAS) else text


def read_cell(text: str) -> str:
    """The text of a cell that ``plain_cell`` wrote."""
    return text[1:] if text[:1] == "'" and text.lstrip("'").startswith(FORMULAS) else text


def beginning(path: Path, size: int = 4096) -> str:
    """The first ``size`` bytes of a file as text; empty for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size).decode("utf-8", errors="ignore")
    except OSError:
        return ""
