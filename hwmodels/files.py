"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hwmodels.errors import InputError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the name to write a file under; it takes its own name, beside it, when the block ends well.

    Folders are made for it. Of a link, the file that it leads to is replaced; what is no plain file (a
    device, a pipe) is written as it is.

    Raises:
        InputError: it cannot be written; what was written of it is gone.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            yield target
            return
        if target.parent.exists() and not target.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{os.getpid()}.{target.name}")
        try:
            yield temporary
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror or error})", str(path)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file whole.

    Raises:
        InputError: it cannot be written; what was written of it is gone.
    """
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
