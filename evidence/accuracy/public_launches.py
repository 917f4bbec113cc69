"""Launch files of public repositories, read here, beside what is right by hand.

    python -m benchmarks.public_launches FOLDER

``public_launches.yaml`` names repository, path and commit of each file; FOLDER holds those that somebody has
fetched, as FOLDER/repository/path. A line a file: what was read or the refusal, and whether that is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.errors import InfeasibleError, InputError
from evidence.command import command
from meshwright.exporters.imports import read_launch

TABLE = Path(__file__).with_name("public_launches.yaml")


def launches() -> list[dict[str, Any]]:
    """The files, with their right values."""
    return yaml.safe_load(TABLE.read_text(encoding="utf-8"))["launches"]


def problem(launch: Mapping[str, Any], path: Path) -> tuple[str, str]:
    """What was read of a file at a path, and the first thing that is wrong; empty where all is right."""
    try:
        imported = read_launch(str(path), stated=launch["stated"])
    except (InputError, InfeasibleError) as error:
        words = str(error).partition(f"{path}: ")[2] or str(error)
        refusal = launch.get("refused")
        return f"refused: {words}", "" if refusal and refusal in words else f"refused: {words}"
    if "refused" in launch:
        return "read", f"should be refused by {launch['refused']}"
    described = {**imported.scenario, "note": " ".join(imported.notes)}
    for key, right in launch["right"].items():
        value = _at(described, key)
        if not (right in value if key == "note" else value == right):
            return "read", f"{key}: {value!r} for {right!r}"
    return f"{len(launch['right'])} fields", ""


def _at(node: Any, key: str) -> Any:
    for part in key.split("."):
        if isinstance(node, list):
            node = node[int(part)]
        else:
            node = node.get(part) if isinstance(node, Mapping) else None
    return node


@command
def main(folder: Path = Path()) -> int:
    """Print a line a file; exit 1 where one is not right."""
    wrong = read = 0
    for launch in launches():
        path = folder / launch["repository"] / launch["path"]
        name = f"{launch['repository']} {launch['path']}"
        if not path.is_file():
            print(f"absent {name[-76:]:76} at {launch['commit'][:8]}")
            continue
        words, fault = problem(launch, path)
        read, wrong = read + 1, wrong + bool(fault)
        print(f"{'WRONG' if fault else 'right':6} {name[-76:]:76} {fault or words[:140]}")
    print(f"{read - wrong} of {read} right, {len(launches()) - read} absent")
    return 1 if wrong else 0
