"""An imported scenario as the text of a YAML file; options kept aside are its comments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from core.loading import looks_like_path
from meshwright.exporters.base import Imported, commented, flags, one_line


def scenario_text(imported: Imported, source: str, folder: Path | None = None) -> str:
    """The file: where it comes from, what was kept aside, and the scenario.

    Args:
        imported: launch file, read.
        source: its name.
        folder: of the file; paths in the scenario are relative to it.
    """
    lines = [f"Imported from {one_line(source)[:200]} ({imported.target})."]
    lines += [f"Note: {one_line(note)}" for note in imported.notes]
    if imported.aside:
        lines.append("Kept aside; no prediction reads them:")
        lines += [f"  {one_line(line)}" for line in flags(imported.aside)]
    relocated = {key: _moved(value, folder) for key, value in imported.scenario.items()}
    body = yaml.safe_dump(relocated, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return commented(lines) + body


def _moved(value: Any, folder: Path | None) -> Any:
    """A path of the current folder, as seen from another."""
    if folder is None or not isinstance(value, str) or not looks_like_path(value) or os.path.isabs(value):
        return value
    return os.path.relpath(value, folder)
