"""Files that an addition touches: ``python -m benchmarks.additions [NAME ...]`` prints them.

``additions.yaml`` holds a small member of each concept, written as the docs say. Each is made in a copy of
the tree and used there. Exit 1 where one does not work, or touches more files than are asked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from core.errors import InputError, UnknownNameError
from core.loading import Strict, build, read_mapping
from evidence.command import command

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "hwmodels", "simulator", "planner", "meshwright", "profiles", "scenarios")
SECONDS = 300


class Addition(Strict):
    """A member of a concept."""

    asked: int | None = None
    """Most files that it may touch; None: as many as it takes."""
    page: str
    """Where its way is written."""
    files: dict[str, str] = Field(default_factory=dict)
    """New files and their text."""
    lines: dict[str, list[Annotated[list[str], Field(min_length=2, max_length=2)]]] = Field(
        default_factory=dict
    )
    """Changed files: texts that they hold once, and what takes their place."""
    use: str
    """Python that fails unless the member works."""

    @property
    def touched(self) -> int:
        """Number of new and changed files."""
        return len(self.files) + len(self.lines)

    @property
    def too_many(self) -> bool:
        """Whether it touches more files than are asked."""
        return self.asked is not None and self.touched > self.asked


def additions() -> Mapping[str, Addition]:
    """The additions by name."""
    path = Path(__file__).with_suffix(".yaml")
    return {name: build(Addition, entry, f"{path}: {name}") for name, entry in read_mapping(path).items()}


def problem(addition: Addition) -> str:
    """Why an addition does not work in a copy of the tree; empty where it does.

    Raises:
        InputError: a new file is there already, or a text is not found once.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        _write(addition, copy)
        settings = {**os.environ, "PYTHONPATH": folder, "XDG_CACHE_HOME": folder}
        done = subprocess.run(
            [sys.executable, "-c", addition.use],
            env=settings,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    return "" if done.returncode == 0 else done.stderr[-2000:]


def _write(addition: Addition, root: Path) -> None:
    for name, text in addition.files.items():
        if (root / name).exists():
            raise InputError("is there already", name)
        (root / name).write_text(text, encoding="utf-8")
    for name, pairs in addition.lines.items():
        text = (root / name).read_text(encoding="utf-8")
        for old, new in pairs:
            if text.count(old) != 1:
                raise InputError(f"holds {text.count(old)} times what is found once: {old!r}", name)
            text = text.replace(old, new)
        (root / name).write_text(text, encoding="utf-8")


@command
def main(names: Sequence[str] = ()) -> int:
    """Print the table; the exit status."""
    members, failed = additions(), []
    for name in names:
        if name not in members:
            raise UnknownNameError("addition", name, members)
    print("| to add | files | asked | lines | way | works |\n|---|---|---|---|---|---|")
    for name in names or members:
        addition = members[name]
        lines = sum(text.count("\n") for text in addition.files.values())
        changes = [pair for pairs in addition.lines.values() for pair in pairs]
        lines += sum(max(1, new.count("\n") - old.count("\n")) for old, new in changes)
        why = problem(addition)
        limit, works = addition.asked or "", "no" if why else "yes"
        print(f"| {name} | {addition.touched} | {limit} | {lines} | {addition.page} | {works} |", flush=True)
        if why or addition.too_many:
            failed.append(f"{name}: {why or 'touches more files than are asked'}")
    print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0
