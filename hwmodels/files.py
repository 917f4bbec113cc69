"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name beside it, then give it its own.

    A link keeps pointing where it does. What is no regular file (a device, a pipe, standard output) is
    written to as it is, for a name given to a new file would take the device's away.

    Raises:
        OSError: it cannot be written; what was written of it is gone.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)
        return
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
