"""Ranked runs of weeks as tables and JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from core.durations import written
from meshwright.reports.run_bands import days_band, in_proportion
from meshwright.reports.runs import describe_planned_run, longest_period_s, run_verdict
from meshwright.reports.tables import facts, table
from meshwright.reports.units import percent
from planner.run_search import RankedRun, RunRanking, RunSearch

UNITS = {"time": "days", "cost": "$", "energy": "kWh"}


def describe_run_search(ranking: RunRanking) -> dict[str, Any]:
    """The output of ``plan --run --json``."""
    return {
        "title": ranking.title,
        "objective": ranking.objective,
        "quantile": ranking.quantile,
        "best_gpus": ranking.best.gpus if ranking.best else None,
        "sizes": [_size(size) for size in ranking.sizes],
    }


def _size(size: RunSearch) -> dict[str, Any]:
    if not size.ranked:
        return {"gpus": size.gpus, "problem": size.problem}
    return {"gpus": size.gpus, "plans": [_ranked(each) for each in size.ranked]}


def _ranked(each: RankedRun) -> dict[str, Any]:
    return {
        "value": each.value,
        "plan": each.plan.model_dump(mode="json"),
        "step_time_s": each.run.outcome.inputs.step_s,
        "run": describe_planned_run(each.run),
    }


def run_search_tables(ranking: RunRanking) -> list[Table | str]:
    """A verdict, the best run of each size, then the ranking of the best size."""
    columns = ["GPUs", "plan", "checkpoints", "period", "days", "90 %", "$", "MWh", "goodput"]
    if any(each.run.outcome.inputs.spares for size in ranking.sizes for each in size.ranked):
        columns.append("spares")
    tables: list[Table | str] = [] if ranking.best is None else [run_verdict(ranking.best.run)]
    if len(ranking.sizes) > 1:
        rows = [
            _row(size.ranked[0])
            if size.ranked
            else [f"{size.gpus:,}", size.problem, *[""] * (len(columns) - 2)]
            for size in ranking.sizes
        ]
        tables.append(table(columns, [row[: len(columns)] for row in rows], ranking.title, left=3))
    if ranking.best is not None:
        best = next(size for size in ranking.sizes if size.gpus == ranking.best.gpus)
        title = f"Runs of {best.gpus:,} GPUs, by {ranking.quantile} of {UNITS[ranking.objective]}"
        tables.append(table(columns, [_row(each)[: len(columns)] for each in best.ranked], title, left=3))
    if len(ranking.sizes) > 1 and ranking.best is not None and ranking.best.gpus < ranking.sizes[-1].gpus:
        tables.append(
            facts({"more GPUs": f"beyond {ranking.best.gpus:,} they no longer help {ranking.objective}"})
        )
    return tables


def _period(each: RankedRun) -> str:
    """The period of the saves; where many longer ones cost less than 1 %, the longest of them."""
    longest = longest_period_s(each.run)
    return written(each.run.outcome.inputs.period_s) if longest is None else f"up to {written(longest)}"


def _row(each: RankedRun) -> list[str]:
    outcome, days = each.run.outcome, days_band(each.run)
    return [
        f"{each.gpus:,}",
        each.plan.describe(),
        each.mechanism or "none",
        _period(each) if each.mechanism else "-",
        days.middle_words(),
        days.ends(),
        in_proportion(each.run.usd, days).middle_words(),
        in_proportion(each.run.kwh / 1000, days).middle_words(),
        percent(outcome.goodput),
        str(outcome.inputs.spares),
    ]
