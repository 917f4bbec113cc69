"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from hwmodels.errors import InputError


def write_whole(path: Path, text: str) -> None:
    """Write a text file under a temporary name beside it, then give it its own; folders are made for it.

    Raises:
        InputError: it cannot be written; what was written of it is gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", str(path)) from None
