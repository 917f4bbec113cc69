"""The scenarios that ship with Meshwright, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from core.errors import InputError, UnknownNameError
from core.loading import SUFFIXES, exists, read_mapping
from core.parsing import no_such_file

OF_MEASUREMENTS = ("measured", "citation")
"""Keys of a scenario that `validate` reads alone (`meshwright.jobs.measured`)."""


WRITTEN = (".csv", ".html", ".gz", ".parquet", ".db")
"""Suffixes of files that commands write and none reads as a scenario."""
NUMBER_WORDS = {"thousand": "k", "million": "M", "billion": "B", "trillion": "T"}
NUMBER_WORDS |= {letter: letter.upper() for letter in "mbt"} | {"k": "k"}
"""Words after a number that a shell takes for a scenario: ``--tokens 15 trillion``."""


UNITS = frozenset(
    {"token", "sequence", "sample", "gpu", "device", "node", "day", "hour", "second", "ms", "request"}
)
"""Words behind a number that a shell takes for a scenario: ``--seq-len 8k tokens``."""


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
    if path.suffix.lower() in WRITTEN:
        raise InputError("is no scenario, which is a YAML file: --save plan.yaml writes one", reference)
    if exists(path) and path.is_file():
        return path
    if reference in shipped:
        return shipped[reference]
    if exists(path) and path.is_dir():
        raise InputError("is a folder, a file is needed", reference)
    if reference.endswith(SUFFIXES):
        raise no_such_file(path)
    _refuse_model(reference, shipped)
    if reference.lower() in NUMBER_WORDS:
        raise InputError(
            f"is no scenario; a number is one word: 15{NUMBER_WORDS[reference.lower()]}", reference
        )
    if reference.lower().rstrip("s") in UNITS:
        raise InputError("is no scenario; numbers are written without a unit: --seq-len 8k", reference)
    if re.fullmatch(r"\w+=\S+", reference):
        raise InputError(
            "is no scenario; each value has its flag: --fix tensor=8 --fix pipeline=4", reference
        )
    raise UnknownNameError("scenario", reference, shipped)


def _refuse_model(reference: str, shipped: Iterable[str]) -> None:
    """Say how a model is asked about, where its name stands for a scenario and begins none.

    Raises:
        InputError: the name of a model.
    """
    from simulator.models import models

    if models.resolve(reference) and not any(name.startswith(reference) for name in shipped):
        commands = f"meshwright plan train --model {reference} or plan serve --model {reference}"
        raise InputError(f"is a model, a scenario is needed; to plan one: {commands}", reference)


def read_question(reference: str) -> tuple[dict[str, Any], str, Path]:
    """A scenario's keys and values, its name in errors, and the folder of its relative paths.

    Raises:
        InputError: there is no such file, or it is no mapping.
        UnknownNameError: no shipped scenario has this name.
    """
    path = scenario_path(reference)
    return read_keys(path), str(path), path.parent


def read_keys(path: Path) -> dict[str, Any]:
    """The keys and values of a scenario file, without the figures that were measured of it.

    Raises:
        InputError: there is no such file, or it is no mapping.
    """
    return {key: value for key, value in read_mapping(path).items() if key not in OF_MEASUREMENTS}


def question_of(path: Path) -> str:
    """Description of a scenario: the comment at the top of its file."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines)
