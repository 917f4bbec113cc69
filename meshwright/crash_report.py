"""Crash report: all that a maintainer needs, in one file."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from meshwright import __version__

KEPT = 10
"""Reports that stay in the temporary folder; older ones are removed."""
PREFIX = "meshwright-fault-"


def _keep_last(folder: Path) -> None:
    """Remove this user's reports but the last ``KEPT``."""
    reports = []
    for path in folder.glob(f"{PREFIX}*.txt"):
        with suppress(OSError):
            reports.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(reports)[:-KEPT]:
        with suppress(OSError):
            path.unlink()


def report_fault(error: BaseException) -> str:
    """Write the report of an unexpected error.

    Returns:
        One line for the user, with the path of the report.
    """
    kind = type(error).__name__
    said = " ".join(str(error).split())[:100]
    line = f"unexpected {kind}{f' ({said})' if said else ''}: a fault of Meshwright"
    lines = [
        f"meshwright {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {sys.argv!r}",
        "",
        *traceback.format_exception(error, limit=-50),
    ]
    try:
        descriptor, path = tempfile.mkstemp(prefix=PREFIX, suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines))
        _keep_last(Path(path).parent)
    except OSError:
        return f"{line}; no report could be written"
    return f"{line}; please attach {path} to an issue"
