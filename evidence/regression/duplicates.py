"""Duplicated code of the packages: pylint's R0801, six lines or more.

    python -m benchmarks.duplicates

Prints the number of pairs and the lines that they share. Needs pylint.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

PACKAGES = ("core", "hwmodels", "simulator", "planner", "profiles", "meshwright")
LINES = 6
"""Lines from which code counts as duplicated; comments, docstrings, imports and signatures do not count."""


def shared(report: str) -> list[int]:
    """Lines of each duplicated block in pylint's report."""
    spans = re.findall(r"^==[\w.]+:\[(\d+):(\d+)\]$", report, re.MULTILINE)
    return [int(end) - int(start) for start, end in spans[::2]]


def main() -> None:
    """Print the count."""
    switches = ["--disable=all", "--enable=duplicate-code", f"--min-similarity-lines={LINES}"]
    switches += [f"--ignore-{part}=yes" for part in ("comments", "docstrings", "imports", "signatures")]
    command = [sys.executable, "-m", "pylint", *switches, *PACKAGES]
    if find_spec("pylint") is None:
        sys.exit("pylint is missing: pip install pylint")
    blocks = shared(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    print(f"{len(blocks)} duplicated blocks of {LINES} lines or more, {sum(blocks)} lines")


if __name__ == "__main__":
    main()
