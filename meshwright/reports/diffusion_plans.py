"""Plans of a diffusion model, as tables, as scenarios and under the keys of docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from meshwright.reports.diffusion import error_words, latency_band
from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import percent, seconds, significant
from planner.diffusion.search import DiffusionPlan, DiffusionSearch
from simulator.diffusion.load import DiffusionLoad
from simulator.diffusion.setting import DiffusionSetting


def layout_words(plan: DiffusionPlan) -> str:
    """Degrees above one, and where weights lie, in words."""
    stated = plan.request.setting.layout.model_dump(exclude_defaults=True)
    words = (name if value is True else f"{name} {value}" for name, value in stated.items())
    return ", ".join(words) or "one GPU"


def scenario_of(data: Mapping[str, Any], plan: DiffusionPlan) -> dict[str, Any]:
    """The scenario that `simulate` runs as the search did."""
    setting = plan.request.setting
    stated = setting.layout.model_dump(exclude_defaults=True)
    workload = {**data["workload"], "batch": setting.workload.batch}
    return {**data, "workload": workload, "layout": stated, "replicas": plan.replicas}


def describe_plans(search: DiffusionSearch, load: DiffusionLoad) -> dict[str, Any]:
    """The answer of a search, with documented keys."""
    return {
        "tried": search.tried,
        "removed": search.removed,
        "plans": [
            {
                "gpus": plan.devices,
                "replicas": plan.replicas,
                "layout": plan.request.setting.layout.model_dump(mode="json"),
                "batch": plan.request.setting.workload.batch,
                "batch_latency_s": plan.request.times.latency_s,
                "p90_s": plan.p90_s,
                "within_target": plan.result.share_within(load.latency or 0.0),
                "busy": plan.result.busy_s / (plan.replicas * plan.result.span_s),
                "usd": plan.usd,
                "joules": plan.result.joules / len(plan.result.latencies_s),
            }
            for plan in search.plans
        ],
    }


def plan_tables(search: DiffusionSearch, setting: DiffusionSetting, load: DiffusionLoad) -> list[Table | str]:
    """A verdict, the question, the plans, and what removed the others."""
    work = setting.workload
    frames = f", {work.frames} frames" if work.frames > 1 else ""
    question = {
        "model": setting.model.name,
        "request": f"{work.width:,} x {work.height:,} pixels{frames}, {setting.steps:,} steps",
        "load": f"{load.arrivals.mean_rate():.4g} a second; {percent(load.share)} within "
        f"{seconds(load.latency or 0.0)}",
        "library": setting.library.title,
        "expected error": error_words(setting),
    }
    names = ("GPUs", "replicas", "layout", "batch", "p90", "within", "busy", "$ per 1,000", "J each")
    rows = [
        [
            f"{plan.devices:,}",
            f"{plan.replicas:,}",
            layout_words(plan),
            f"{plan.request.setting.workload.batch}",
            seconds(plan.p90_s),
            percent(plan.result.share_within(load.latency or 0.0)),
            percent(plan.result.busy_s / (plan.replicas * plan.result.span_s)),
            f"{1e3 * plan.usd:,.2f}",
            f"{plan.result.joules / len(plan.result.latencies_s):,.0f}",
        ]
        for plan in search.plans
    ]
    left = {reason: f"{count:,} of {search.tried:,}" for reason, count in search.removed.items()}
    return [
        *_verdict(search, load),
        table(names, rows, "Plans"),
        facts(question, "What is asked"),
        *([facts(left, "Removed")] if left else []),
    ]


def _verdict(search: DiffusionSearch, load: DiffusionLoad) -> list[str]:
    """The first plan in a line; without plans nothing."""
    if not search.plans:
        return []
    plan = search.plans[0]
    band = latency_band(plan.request.setting)
    parts = [
        f"{plan.replicas:,} x {layout_words(plan)}: p90 {seconds(plan.p90_s)}{band} on {plan.devices:,} GPUs",
        f"{percent(plan.result.share_within(load.latency or 0.0))} within {seconds(load.latency or 0.0)}",
        f"{significant(1e3 * plan.usd)} $ per 1,000 requests",
    ]
    return ["\n".join(fitted(parts))]


def nearest_plan(search: DiffusionSearch, load: DiffusionLoad) -> str:
    """Why no plan is found, and the nearest one."""
    target = f"{percent(load.share)} within {seconds(load.latency or 0.0)}"
    if search.nearest is None:
        return f"no layout carries the load on these devices; target {target}; more GPUs would help"
    plan = search.nearest
    share = percent(plan.result.share_within(load.latency or 0.0))
    return (
        f"no plan reaches {target}; nearest: {layout_words(plan)}, {plan.replicas} replicas "
        f"({plan.devices} GPUs), {share}, p90 {seconds(plan.p90_s)}; more GPUs, fewer steps or a "
        "longer target would help"
    )
