"""Calibrations on disk: YAML for the constants, and beside it the grids of residuals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from core.files import write_text
from hwmodels.kernels.residual import save_grids
from profiles.fitting.calibrate import Fit


class _Dumper(yaml.SafeDumper):
    """Block style for the tree, one line for each group of numbers."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
        values = mapping.values() if isinstance(mapping, dict) else ()
        numbers = bool(values) and not any(isinstance(value, dict | str) for value in values)
        return super().represent_mapping(tag, mapping, flow_style=numbers or flow_style)


def write_calibration(fit: Fit, path: Path) -> list[Path]:
    """Write the calibration as YAML and its grids beside it: whole files, under temporary names first.

    Returns:
        The files written.
    """
    content = dict(fit.calibration)
    written = [path]
    if fit.grids:
        beside = path.with_name(f"{path.stem}.residuals.npz")
        save_grids(beside, fit.grids)
        content["residuals"] = beside.name
        written.append(beside)
    write_mapping(content, path)
    return written


def write_mapping(content: dict[str, Any], path: Path) -> None:
    """Write a calibration's mapping as YAML, whole, under a temporary name first."""
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
    write_text(path, text)
