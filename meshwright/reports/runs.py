"""Runs of weeks as tables and under the keys of docs/json.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from rich.table import Table

from core.durations import written
from meshwright.reports.finite import finite
from meshwright.reports.run_bands import days_band, in_proportion
from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import percent, scaled
from planner.runs import PlannedRun
from simulator.runs.closed_form import effective, elastic
from simulator.runs.detectors import DetectorValue, detector_values
from simulator.runs.engine_saves import EngineSave
from simulator.runs.events import LOST

DAY = 86400.0


def describe_planned_run(run: PlannedRun) -> dict[str, Any]:
    """The ``run`` of ``simulate --json``."""
    outcome, case = run.outcome, run.case
    inputs, state = outcome.inputs, case.state
    return {
        "finish_days": {
            "mean": _days(outcome.mean_s),
            **{f"p{int(100 * share)}": _days(outcome.quantile(share)) for share in (0.1, 0.5, 0.9)},
        },
        "finish_band_days": [finite(end) for end in (days_band(run).low, days_band(run).high)],
        "work_days": inputs.work_s / DAY,
        "steps": inputs.steps,
        "goodput": outcome.goodput,
        "goodput_error": finite(outcome.goodput_error),
        "closed_form": {name.replace(" ", "_"): value for name, value in outcome.closed_form.items()},
        "closed_form_lacks": outcome.assumptions,
        "states_s": outcome.seconds,
        "faults": {
            "name": inputs.faults.name,
            "mtbf_s": finite(outcome.mtbf_s),
            "count": outcome.faults,
            "by_cause": outcome.by_cause,
        },
        "recovery_s": inputs.means() if inputs.faults.processes else {},
        "checkpoint": _checkpoint(run),
        "saved_bytes": float(state.total[0]),
        "bytes_per_parameter": float(state.bytes_per_parameter[0]),
        "spares": inputs.spares,
        "spare_node_hours": sum(each.spare_s for each in outcome.replications)
        / len(outcome.replications)
        / 3600,
        "usd": finite(run.usd),
        "kwh": finite(run.kwh),
        "replications": len(outcome.replications),
        "unfinished": sum(not each.done for each in outcome.replications),
        "interrupted": outcome.interrupted,
        "seed": case.request.question.seed,
        "assumed": assumed(run),
        **_detectors(run),
    }


def _detectors(run: PlannedRun) -> dict[str, Any]:
    """What detectors of the run's stragglers must find; nothing without stragglers."""
    values = detector_values(run.outcome.inputs, run.case.request.question.stragglers)
    names = [each.name for each in fields(DetectorValue)]
    rows = [{name: finite(getattr(each, name)) for name in names} for each in values]
    for row in rows:
        saves = row["saves_s"]
        row["saves_s"] = saves if saves is not None and saves > 0 else None
    return {"detectors": rows} if rows else {}


def detector_table(runs: Sequence[tuple[str, dict[str, Any]]]) -> list[Table]:
    """Stragglers of runs and what finding them is worth; empty without any.

    Args:
        runs: label and description of each.
    """
    rows = []
    for label, outcome in runs:
        for each in outcome.get("detectors", ()):
            shortest, least = each["least_lasts_s"], each["least_factor"]
            rows.append(
                [
                    label,
                    str(each["straggler"]),
                    percent(each["factor"] - 1),
                    written(each["lasts_s"]),
                    written(each["restart_s"]),
                    written(each["saves_s"]) if each["saves_s"] is not None else "nothing",
                    percent(least - 1) if least is not None else "never",
                    written(shortest) if shortest is not None else "never",
                ]
            )
    columns = [
        "run",
        "straggler",
        "slows by",
        "lasts",
        "eviction costs",
        "saves",
        "pays from",
        "or if it lasts",
    ]
    return [table(columns, rows, "What a detector must find")] if rows else []


def _days(seconds: float) -> float | None:
    return seconds / DAY if math.isfinite(seconds) else None


def _checkpoint(run: PlannedRun) -> dict[str, Any] | None:
    mechanism, save = run.case.request.question.checkpoints, run.case.save
    if mechanism is None or save is None:
        return None
    timed = run.case.engine_save
    engine = {} if timed is None else {"engine": _beside(timed)}
    return {
        **engine,
        "mechanism": mechanism.mechanism,
        "period_s": finite(run.outcome.inputs.period_s),
        "stall_s": float(save.stall_s[0]),
        "least_period_s": float(save.least_period_s[0]),
        "host_bytes_per_node": float(save.host_bytes[0]),
        "safe_s": {place: float(times[0]) for place, times in save.safe_s.items()},
        "load_s": {place: float(times[0]) for place, times in save.load_s.items()},
    }


SEEN = 5e-4
"""Share of a step from which its slowing beside a save is printed."""


def _shown_beside(save: EngineSave | None) -> str:
    """What steps take longer beside a save; empty where the engine timed none."""
    if save is None or not save.write_s or save.beside_s < (1.0 + SEEN) * save.step_s:
        return ""
    slower = percent(save.beside_s / save.step_s - 1)
    return f"; steps beside a save take {slower} longer, {written(save.extra_s)} in all"


def _beside(save: EngineSave) -> dict[str, Any]:
    return {
        "step_s": save.step_s,
        "beside_s": save.beside_s,
        "write_s": save.write_s,
        "extra_s": save.extra_s,
    }


def assumed(run: PlannedRun) -> list[str]:
    """What the run assumes because neither scenario nor cluster states it."""
    request, assumptions = run.case.request, []
    if run.case.save is not None:
        assumptions += run.case.rates.assumed
    if request.faults.processes:
        assumptions += request.question.recovery.assumed(run.outcome.inputs.devices)
        preset = request.faults.preset
        if preset is not None and preset.second_hand:
            assumptions.append(f"faults: {preset.name} holds second-hand figures")
        lost = run.outcome.seconds[LOST]
        if run.case.save is None and lost > 0:
            share = percent(lost / sum(run.outcome.seconds.values()))
            assumptions.append(
                f"no checkpoints: each fault starts the run again, and {share} of the time is lost work; "
                "`checkpoints: {mechanism: asynchronous, every: auto}` would keep it"
            )
    return assumptions


NO_FAULTS = "No faults are stated (`faults:` of the run; `meshwright show faults` lists published ones)."


def run_verdict(run: PlannedRun) -> str:
    """When a run ends, for how much, and how much of its time makes progress, in two lines."""
    days, outcome = days_band(run), run.outcome
    mechanism = run.case.request.question.checkpoints
    saves = f"{mechanism.mechanism} checkpoints" if mechanism is not None else "no checkpoints"
    parts = [
        f"{run.prediction.plans.plan(0).describe()}: {days.words('d')}",
        in_proportion(run.usd, days).money(),
        in_proportion(run.kwh / 1000, days).words("MWh"),
        f"{percent(outcome.goodput)} goodput",
        saves,
    ]
    sentences = ["In brackets: 90 % band of the step's error and the faults."]
    if not run.case.request.faults.processes:
        sentences = ["In brackets: 90 % band of the step's error.", NO_FAULTS]
    return "\n".join(fitted(parts, sentences))


def run_tables_of(run: PlannedRun) -> list[Table | str]:
    """The tables of ``simulate`` about a run, below a verdict."""
    return [run_verdict(run), facts(run_facts(run), "The run"), state_table(run), *_fault_tables(run)]


def run_facts(run: PlannedRun) -> dict[str, str]:
    """Headline figures of a run by name."""
    outcome, inputs = run.outcome, run.outcome.inputs
    planned, days = describe_planned_run(run), days_band(run)
    money, energy = in_proportion(run.usd, days).money(), in_proportion(run.kwh / 1000, days).words("MWh")
    closed = {name: value for name, value in outcome.closed_form.items() if value is not None}
    facts_of_run = {
        "finish": f"{days.words('d')}: 90 % band of step and faults",
        "faults alone": f"{_told(outcome.mean_s)} in the mean, {_told(outcome.quantile(0.1))} (p10) to "
        f"{_told(outcome.quantile(0.9))} (p90)"
        if inputs.faults.processes
        else "",
        "work": f"{inputs.steps:,} steps of {inputs.step_s:.3g} s, {written(inputs.work_s)} without loss",
        "goodput": f"{percent(outcome.goodput)} of the wall time, closed form "
        + ", ".join(f"{percent(value)} ({name})" for name, value in closed.items()),
        "faults": f"{inputs.faults.name}: one in {written(outcome.mtbf_s)}, {outcome.faults:.4g} in the run"
        if inputs.faults.processes
        else "none",
        "checkpoints": _checkpoint_words(run, planned),
        "recovery": ", ".join(
            f"{name} {written(took)}" for name, took in planned["recovery_s"].items() if took > 0
        ),
        "spares": f"{inputs.spares} nodes" if inputs.spares else "none",
        "cost": f"{money} at list price, {energy}, spares included"
        if math.isfinite(run.usd)
        else "without bound: the run never finishes",
        "replications": f"{len(outcome.replications)}"
        + (", ended by Ctrl-C" if outcome.interrupted else "")
        + (f", {planned['unfinished']} of them never finish" if planned["unfinished"] else ""),
        "closed form lacks": "; ".join(outcome.assumptions),
        "assumed": "; ".join(planned["assumed"]),
    }
    return {name: value for name, value in facts_of_run.items() if value}


def _checkpoint_words(run: PlannedRun, planned: dict[str, Any]) -> str:
    """Mechanism, period and places of the saves, or why there are none."""
    checkpoint = planned["checkpoint"]
    if checkpoint is None:
        return "none: each fault starts the run again" if run.outcome.seconds[LOST] > 0 else "none"
    if checkpoint["period_s"] is None:
        return f"{checkpoint['mechanism']}, never: nothing fails"
    places = " and ".join(f"{place} in {written(at)}" for place, at in checkpoint["safe_s"].items())
    return (
        f"{checkpoint['mechanism']}, every {written(checkpoint['period_s'])}{_period_words(run)}, "
        f"training waits {written(checkpoint['stall_s'])}; {scaled(planned['saved_bytes'], 'B')} to {places}"
        + _shown_beside(run.case.engine_save)
    )


PERIODS_S = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0)
"""Periods that people set."""
GIVEN_UP = 0.01
"""Goodput that a longer period may cost."""


def goodput_at(run: PlannedRun, rate: float, period: np.ndarray | float) -> np.ndarray:
    """Goodput by the closed form at other rates of faults, 1/s, or periods, s."""
    inputs = run.outcome.inputs
    if inputs.dropped:
        gone = inputs.dropped
        waits = gone.stall_s + gone.rejoin_s
        return elastic(rate, period, inputs.stall_s, waits, gone.out_s, gone.replicas)
    recovery = sum(inputs.means().values())
    # Without checkpoints the whole work is one period.
    return effective(rate, np.minimum(period, inputs.work_s), inputs.stall_s, recovery, run.outcome.late_s)


def _period_words(run: PlannedRun) -> str:
    """The longest usual period that costs less than ``GIVEN_UP``; empty where the run's own is as long."""
    longest = longest_period_s(run)
    if longest is None:
        return ""
    return f" (any up to {written(longest)} costs less than {percent(GIVEN_UP, 0)})"


def longest_period_s(run: PlannedRun) -> float | None:
    """The longest usual period that costs less than ``GIVEN_UP``, s; None where the run's own is as long."""
    inputs = run.outcome.inputs
    if not inputs.faults.processes or not math.isfinite(inputs.period_s):
        return None
    rate, periods = inputs.faults.rate(inputs.job), np.array(PERIODS_S)
    lost = float(goodput_at(run, rate, inputs.period_s)) - goodput_at(run, rate, periods)
    able = periods[(lost < GIVEN_UP) & (periods > inputs.period_s)]
    return float(able.max()) if len(able) else None


def _told(seconds: float) -> str:
    return f"{seconds / DAY:.2f} d" if math.isfinite(seconds) else "never"


def state_table(run: PlannedRun) -> Table:
    """Mean time in every state."""
    return table(
        ["state", "hours", "share"],
        [[state, f"{took / 3600:.2f}", percent(share, 2)] for state, took, share in states(run)],
        "Where the time goes",
    )


def states(run: PlannedRun) -> list[tuple[str, float, float]]:
    """States with their mean seconds and shares of the wall time; empty ones left out."""
    seconds = run.outcome.seconds
    total = sum(seconds.values())
    return [(state, took, took / total) for state, took in seconds.items() if took > 0]


MOST_CAUSES = 8


def _fault_tables(run: PlannedRun) -> list[Table]:
    causes = list(run.outcome.by_cause.items())
    if len(causes) < 2:
        return []
    rows = [[name, f"{number:.1f}"] for name, number in causes[:MOST_CAUSES]]
    if rest := causes[MOST_CAUSES:]:
        rows.append([f"{len(rest)} others", f"{sum(number for _, number in rest):.1f}"])
    return [table(["cause", "faults"], rows, "Faults of a run")]
