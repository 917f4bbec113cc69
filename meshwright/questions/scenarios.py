"""The scenarios that ship with Meshwright, by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from core.errors import InputError, UnknownNameError
from core.loading import SUFFIXES, exists, read_mapping
from core.parsing import no_such_file


def shipped_scenarios() -> dict[str, Path]:
    """The shipped files by name: the path below ``scenarios`` without its suffix."""
    folder = Path(str(files("scenarios")))
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.yaml"))
    }


def scenario_path(reference: str) -> Path:
    """The file that a name or a path means; user files take precedence over shipped ones.

    Raises:
        InputError: there is no such file.
        UnknownNameError: no shipped scenario has this name (nearest one offered).
    """
    path, shipped = Path(reference), shipped_scenarios()
    if exists(path) and path.is_file():
        return path
    if reference in shipped:
        return shipped[reference]
    if exists(path) and path.is_dir():
        raise InputError("is a folder, a file is needed", reference)
    if reference.endswith(SUFFIXES):
        raise no_such_file(path)
    raise UnknownNameError("scenario", reference, shipped)


def serving_data(reference: str) -> tuple[dict[str, Any], Path] | None:
    """The data and the file of a scenario that asks about serving; None where it asks about training.

    Raises:
        InputError: there is no such file, or it is no mapping.
        UnknownNameError: no shipped scenario has this name.
    """
    path = scenario_path(reference)
    data = read_mapping(path)
    workload = data.get("workload")
    serves = isinstance(workload, Mapping) and workload.get("kind") == "serving"
    return (data, path) if serves else None


def asks_post_training(reference: str) -> bool:
    """Whether a scenario asks about a step of post-training; False without a scenario.

    Raises:
        InputError: there is no such file, or it is no mapping.
        UnknownNameError: no shipped scenario has this name.
    """
    workload = read_mapping(scenario_path(reference)).get("workload") if reference else None
    return isinstance(workload, Mapping) and workload.get("kind") == "rl"


def has_run(reference: str) -> bool:
    """Whether a scenario of training has a ``run`` of weeks; False without a scenario.

    Raises:
        InputError: there is no such file, or it is no mapping.
    """
    return bool(reference) and read_mapping(scenario_path(reference)).get("run") is not None


def question_of(path: Path) -> str:
    """Description of a scenario: the comment at the top of its file."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines)
