"""Readers of published rows: `evidence/` of the source tree, which is in no wheel."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from core.errors import InputError

PLACE = Path("evidence", "__init__.py")


def reader(module: str, rows: str) -> ModuleType:
    """A module of `evidence`, of the source tree that is installed in place or that is the current folder.

    Args:
        module: its name inside `evidence`.
        rows: what it reads, for the error.

    Raises:
        InputError: neither tree is there.
    """
    if find_spec("evidence") is None:
        if not (PLACE.is_file() and Path("meshwright", "__init__.py").is_file()):
            raise InputError(
                f"{rows} are read by `evidence/` of Meshwright's source tree, which is not installed: run "
                "this in a checkout"
            )
        sys.path.append(str(Path.cwd()))
    return import_module(f"evidence.{module}")
