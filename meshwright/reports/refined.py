"""Plans timed by the search and the event engine, and their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.parts import grouped
from meshwright.reports.plans import ONCE
from meshwright.reports.tables import table
from meshwright.reports.units import percent, seconds, signed_percent
from planner.training.metrics import COMMUNICATION
from planner.training.prediction import Prediction
from planner.training.refine import Refined
from simulator.training.step_graph.streams import PASS

SHOWN_PARTS = 2
"""Groups of parts named per plan."""
LEAST_SHARE = 0.003
"""Minimum difference to name, as a share of the step."""


def describe_refined(prediction: Prediction, refined: Sequence[Refined], index: int) -> dict[str, Any]:
    """Engine figures of a plan, with documented keys; empty without an engine run."""
    if index >= len(refined):
        return {}
    run = refined[index]
    if run.problem:
        return {"engine": {"problem": run.problem}}
    return {
        "engine": {
            "step_time_s": run.step_s,
            "rank": 1 + _order(refined).index(index),
            "over_analytic": _gap(prediction, run, index),
            "disagrees_s": _differences(prediction, run, index),
            "peak_memory_bytes": run.peak_bytes,
        }
    }


def refined_table(prediction: Prediction, refined: Sequence[Refined]) -> list[Table | str]:
    """Analytic and engine side by side, and a verdict."""
    plans, order = list(prediction.plans), _order(refined)
    rows = []
    for index, run in enumerate(refined):
        analytic = float(prediction.step.time[index])
        cells = [str(index + 1), plans[index].describe(), plans[index].schedule, seconds(analytic)]
        if run.problem:
            rows.append([*cells, "", "", "", run.problem])
        else:
            gap = signed_percent(_gap(prediction, run, index))
            place = str(1 + order.index(index))
            rows.append([*cells, seconds(run.step_s), gap, place, _words(prediction, run, index)])
    columns = ("rank", "plan", "schedule", "analytic", "engine", "off by", "rank there", "because of")
    runs = table(columns, rows, "On the event engine", left=3)
    runs.columns[-1].justify = "left"
    return [runs, *_verdict(prediction, refined)]


def _verdict(prediction: Prediction, refined: Sequence[Refined]) -> list[str]:
    ran = [index for index, run in enumerate(refined) if not run.problem]
    if not ran:
        return []
    gaps = {index: _gap(prediction, refined[index], index) for index in ran}
    worst = max(ran, key=lambda index: abs(gaps[index]))
    words = [f"They disagree by {percent(abs(gaps[worst]))} at most, for rank {worst + 1}."]
    best = _order(refined)[0]
    if best != ran[0]:
        gain = refined[ran[0]].step_s / refined[best].step_s - 1
        words.append(f"On the engine rank {best + 1} is {percent(gain)} faster than rank {ran[0] + 1}.")
    return words


def _order(refined: Sequence[Refined]) -> list[int]:
    """Plans from the fastest on the engine to the slowest; ties in the search's order."""
    ran = [index for index, run in enumerate(refined) if not run.problem]
    return sorted(ran, key=lambda index: float(f"{refined[index].step_s:.7g}"))


def _gap(prediction: Prediction, run: Refined, index: int) -> float:
    return run.step_s / float(prediction.step.time[index]) - 1


def _differences(prediction: Prediction, run: Refined, index: int) -> dict[str, float]:
    """Engine minus analytic seconds per group of parts, the largest first; empty where the engine ran whole
    passes."""
    if PASS in run.parts_s:
        return {}
    before, now = grouped(_as_engine_counts(prediction, index)), grouped(run.parts_s)
    parts = {name: now.get(name, 0.0) - before.get(name, 0.0) for name in dict.fromkeys([*before, *now])}
    return dict(sorted(parts.items(), key=lambda item: -abs(item[1])))


def _as_engine_counts(prediction: Prediction, index: int) -> dict[str, float]:
    """The analytic parts, with kernel times of the slowest device, launches included."""
    parts = {name: float(part[index]) for name, part in prediction.step.seconds.items()}
    waits = sum(parts.pop(name, 0.0) for name in ("variation", "launch"))
    kernels = [name for name in parts if name not in COMMUNICATION and name not in ONCE]
    longer = 1 + waits / sum(parts[name] for name in kernels)
    return {name: part * (longer if name in kernels else 1.0) for name, part in parts.items()}


def _words(prediction: Prediction, run: Refined, index: int) -> str:
    least = LEAST_SHARE * float(prediction.step.time[index])
    parts = [(name, by) for name, by in _differences(prediction, run, index).items() if abs(by) >= least]
    return ", ".join(f"{name} {'+' if by > 0 else '-'}{seconds(abs(by))}" for name, by in parts[:SHOWN_PARTS])
