"""Runs of a question's serving scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hwmodels.errors import InputError, MeshwrightError
from meshwright.variations.answer import Outcome, inputs
from meshwright.variations.question import ScenarioRun
from planner.execution import Execution
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving


def run_serving(run: ScenarioRun, progress: Callable[[float], None] | None = None) -> Outcome:
    """Run one scenario; its report is that of ``simulate --json``.

    Args:
        run: the scenario.
        progress: called with the share of requests that ended.

    Raises:
        MeshwrightError: it cannot be run.
    """
    return Outcome(run, serve(make_serving(run.data, run.where, run.folder), progress).to_dict())


def serve_runs(runs: Sequence[ScenarioRun], execution: Execution) -> Iterator[tuple[int, Outcome]]:
    """Run scenarios.

    Yields:
        The number of a run and its outcome, in the order in which runs end.
    """
    for number, found, _ in execution.run(_plain_answer, [(run,) for run in runs], inputs):
        yield number, Outcome(runs[number], **found)


def _plain_answer(run: ScenarioRun) -> dict[str, Any]:
    """A run's outcome as plain data; a failure is an outcome too."""
    try:
        return {"report": run_serving(run).report}
    except MeshwrightError as error:
        problem = error.problem if isinstance(error, InputError) else str(error)
        return {"problem": "; ".join(line.strip() for line in problem.splitlines() if line.strip())}
