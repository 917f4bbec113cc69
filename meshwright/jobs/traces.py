"""Places that traces are written to."""

from __future__ import annotations

from pathlib import Path

from core.errors import InputError

TRACES = (".json", ".json.gz")


def is_folder(path: Path) -> bool:
    """Whether traces go into a folder: an existing folder, or a name without an extension.

    Raises:
        InputError: neither a folder nor a trace file.
    """
    if path.is_dir() or (not path.exists() and not path.suffix and path.name):
        return True
    if path.exists() or path.name.endswith(TRACES):
        return False
    raise InputError(f"a trace is a folder or FILE.json.gz or FILE.json, found {str(path)!r}", "--trace")
