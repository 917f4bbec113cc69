"""An imported scenario as the text of a YAML file; options kept aside are its comments."""

from __future__ import annotations

import yaml

from meshwright.exporters.base import commented, flags, one_line
from meshwright.exporters.imports import Imported


def scenario_text(found: Imported, source: str) -> str:
    """The file: where it comes from, what was kept aside, and the scenario."""
    lines = [f"Imported from {one_line(source)[:200]} ({found.target})."]
    lines += [f"Note: {one_line(note)}" for note in found.notes]
    if found.aside:
        lines.append("Kept aside; no prediction reads them:")
        lines += [f"  {one_line(line)}" for line in flags(found.aside)]
    body = yaml.safe_dump(
        found.scenario, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )
    return commented(lines) + body
