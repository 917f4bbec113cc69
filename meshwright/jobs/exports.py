"""Questions of exporters, from a scenario of any kind or from the saved JSON of ``plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import InputError
from meshwright.exporters.base import ExportQuestion
from meshwright.exporters.question import saved_search, scenario_of_search
from meshwright.jobs import job_of
from meshwright.questions.scenarios import read_keys, scenario_path


def question_of(
    reference: str,
    rank: int | None = None,
    command: str = "meshwright export",
    allow: Sequence[str] | None = None,
) -> ExportQuestion:
    """Read the question to export.

    Args:
        reference: scenario (file or shipped name), or a file that ``meshwright plan --json`` printed.
        rank: plan of the saved search, from 1; the first by default.
        command: command line, for the comments of the files.
        allow: rules of the release that the plan may break, instead of the scenario's.

    Raises:
        InputError: unreadable, no such rank, no plan in it; with the key path.
    """
    saved = saved_search(reference)
    if saved is not None:
        scenario = scenario_of_search(saved, rank or 1, reference)
        return from_scenario(scenario, reference, Path(reference).parent, command, allow)
    if rank is not None:
        raise InputError("only a saved `plan --json` has ranks, this is a scenario", "--rank")
    path = scenario_path(reference)
    return from_scenario(read_keys(path), str(path), path.parent, command, allow)


def from_scenario(
    data: Mapping[str, Any], where: str, folder: Path, command: str, allow: Sequence[str] | None = None
) -> ExportQuestion:
    """The question of a scenario's data; ``allow`` replaces its own.

    Raises:
        InputError: a wrong key or value, or no plan.
    """
    return job_of(data, where, folder).export((data, where, folder), command, allow)
