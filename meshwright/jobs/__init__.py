"""Kinds of question and how each is answered; `simulate`, `whatif`, `sweep` and `export` look a kind up once.

`simulator.kinds` tells kinds apart. A job is a module that is named as its kind and holds a record ``JOB``;
it may be composed of the functions of other jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from meshwright.jobs.base import AskOptions, Inquirer, Job, Question
from simulator.kinds import KINDS, kind_of

__all__ = ["AskOptions", "Inquirer", "Job", "Question", "job_named", "job_of", "jobs"]


def job_named(kind: str) -> Job:
    """The job of a kind, whose module is imported on use."""
    return import_module(f"{__name__}.{kind}").JOB


def job_of(data: Mapping[str, Any], where: str = "", folder: Path = Path()) -> Job:
    """The job that answers a scenario.

    Args:
        data: keys and values of the scenario.
        where: its name in errors.
        folder: base of its relative paths.

    Raises:
        InputError: a kind that no job has, or keys of two kinds.
    """
    return job_named(kind_of(data, where, folder).name)


def jobs() -> list[Job]:
    """All jobs."""
    return [job_named(name) for name in KINDS]
