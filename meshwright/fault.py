"""Crash report: all that a maintainer needs, in one file."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback

from meshwright import __version__


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
        descriptor, path = tempfile.mkstemp(prefix="meshwright-fault-", suffix=".txt", text=True)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines))
    except OSError:
        return f"{line}; no report could be written"
    return f"{line}; please attach {path} to an issue"
