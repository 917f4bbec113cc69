"""Replicas over a day: table for people, JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.serving_evidence import error_words, shape_errors
from meshwright.reports.tables import facts, table
from meshwright.reports.units import per_second, percent, seconds
from planner.serving.day import DayPlan, DayRun, day_scenario


def describe_day(plan: DayPlan, runs: Sequence[DayRun]) -> dict[str, Any]:
    """A day with documented keys."""
    return {
        "model": plan.question.model.name,
        "device": plan.question.cluster.device.name,
        "replica": plan.group.shape.describe(),
        "gpus_per_replica": plan.group.devices,
        "rate_per_replica": plan.rate,
        "period_s": plan.arrivals.period,
        "rates": list(plan.arrivals.rates),
        "replicas": plan.needed.tolist(),
        "cold_start_s": plan.cold_start_s,
        "timetable_usd": plan.timetable_usd,
        "fixed_usd": plan.fixed_usd,
        "runs": [
            {
                "scaler": run.scaler,
                "usd": run.usd,
                "slo_share": run.slo_share,
                "replicas_started": run.started,
            }
            for run in runs
        ],
        "scenario": day_scenario(plan),
    }


def day_tables(plan: DayPlan, runs: Sequence[DayRun]) -> list[Table | str]:
    """The timetable, its cost, and the runs on the event engine."""
    arrivals, slo = plan.arrivals, plan.question.workload.slo
    rows = [
        [seconds_of_day(index * arrivals.period), f"{rate:g}/s", str(count), str(count * plan.group.devices)]
        for index, (rate, count) in enumerate(zip(arrivals.rates, plan.needed.tolist(), strict=True))
    ]
    title = (
        f"{plan.question.model.name}, {plan.group.shape.describe()} on {plan.question.cluster.device.name}"
    )
    saved = 1 - plan.timetable_usd / plan.fixed_usd
    largest, smallest = plan.needed.max(), plan.needed.min()
    words = (
        f"{smallest} to {largest} replicas: {plan.timetable_usd:,.0f} $ a cycle, {_less(saved)} "
        f"{largest} {'replica' if largest == 1 else 'replicas'} throughout ({plan.fixed_usd:,.0f} $).\n"
        f"A replica carries {per_second(plan.rate)} requests/s within the targets "
        f"({percent(slo.share, 0)} of them)."
    )
    timetable = table(("from", "rate", "replicas", "GPUs"), rows, left=1)
    tables: list[Table | str] = [words, title, timetable]
    if runs:
        lines = [[run.scaler, f"{run.usd:,.2f}", percent(run.slo_share), str(run.started)] for run in runs]
        headings = ("on the event engine", "$ a cycle", "within targets", "replicas started")
        tables.append(table(headings, lines, left=1))
    basis = {
        "cold start": f"{seconds(plan.cold_start_s)} from renting a replica to its first request",
        "model": "steady state of each period; --refine 1 runs the cycle on the event engine",
        "price": f"{plan.question.types[0].usd_per_hour:g} $ an hour and device",
        **error_words(shape_errors(plan.question, plan.group.shape)),
    }
    return [*tables, facts(basis, "What this rests on")]


def _less(share: float) -> str:
    return f"{percent(share, 0)} less than" if share > 0 else "as much as"


def seconds_of_day(value: float) -> str:
    """A time since midnight: ``07:30``."""
    minutes = round(value / 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
