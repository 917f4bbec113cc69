"""The answer of one point: figures in one flat row, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import MeshwrightError
from planner.store import file_digests


def answer(ask: str, data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """Answer one point.

    Args:
        ask: plan or simulate.
        data: the scenario.
        folder: base of its relative paths.
        where: name of the source in errors.

    Returns:
        Figures by name; ``problem`` alone where the point has no answer.
    """
    from meshwright.jobs import job_of

    try:
        question = data, where, Path(folder)
        return dict(job_of(*question).row(ask, question))
    except MeshwrightError as error:
        return {"problem": " ".join(str(error).split())}


def question(ask: str, data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """Inputs of a point's answer: the scenario, and the files that it names; same arguments as ``answer``."""
    return {"ask": ask, "scenario": data, "files": file_digests(data, Path(folder))}
