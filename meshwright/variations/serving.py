"""Runs of a question's serving scenarios."""

from __future__ import annotations

from collections.abc import Callable

from hwmodels.errors import InputError, MeshwrightError
from meshwright.variations.answer import Outcome
from meshwright.variations.question import Run
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving


def run_serving(run: Run, progress: Callable[[float], None] | None = None) -> Outcome:
    """Run one scenario; its report is that of ``simulate --json``.

    Args:
        run: the scenario.
        progress: called with the share of requests that ended.

    Raises:
        MeshwrightError: it cannot be run.
    """
    return Outcome(run, serve(make_serving(run.data, run.where, run.folder), progress).to_dict())


def answer_serving(run: Run) -> Outcome:
    """Run one scenario; a failure is an outcome too."""
    try:
        return run_serving(run)
    except MeshwrightError as error:
        problem = error.problem if isinstance(error, InputError) else str(error)
        return Outcome(run, problem="; ".join(line.strip() for line in problem.splitlines() if line.strip()))
