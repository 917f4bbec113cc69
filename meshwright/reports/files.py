"""Text files that users ask for."""

from __future__ import annotations

from pathlib import Path

from hwmodels import files
from hwmodels.errors import InputError


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all (``hwmodels.files``); folders are made for it.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(path, text.encode())
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", str(path)) from None
