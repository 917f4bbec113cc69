"""A step on a cluster of groups: figures of the groups and of the step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, table
from meshwright.reports.units import counted, gibibytes, percent, seconds, significant
from planner.training.metrics import step_flops_per_token
from simulator.placement import MixedSetting
from simulator.plan import Plan, Plans
from simulator.scenario import MixedScenario
from simulator.training.mixed import GroupStep, MixedStep
from simulator.uncertainty import mixed_half_width


def describe_mixed(scenario: MixedScenario, step: MixedStep, engine: MixedStep | None) -> dict[str, Any]:
    """A step with documented keys; ``engine`` where the event engine ran it too."""
    setting, plan = scenario.setting, scenario.plan
    report = {
        "title": scenario.title,
        "model": setting.model.name,
        "cluster": setting.cluster.name,
        "gpus": plan.devices,
        "framework": setting.framework.name,
        "seq_len": setting.training.seq_len,
        "global_batch": setting.training.global_batch,
        "precision": setting.training.precision,
        "plan": plan.model_dump(mode="json"),
        **({"insisted": dict(scenario.insisted)} if scenario.insisted else {}),
        **_figures(setting, plan, step),
        "groups": [_group(group, step.seconds) for group in step.groups],
    }
    if engine is not None:
        groups = [_group(group, engine.seconds) for group in engine.groups]
        report["engine"] = {"step_time_s": engine.seconds, "groups": groups}
    return report


def _figures(setting: MixedSetting, plan: Plan, step: MixedStep) -> dict[str, float | None]:
    cluster, training = setting.cluster, setting.training
    rate = training.tokens / step.seconds
    uniform = replace(setting.on(step.groups[0].share, plan), model=setting.model)
    model, again = step_flops_per_token(uniform, Plans.of(plan))
    peak = cluster.peak_flops(training.precision)
    busy = {group.name: 0.0 for group in cluster.groups}
    busy |= {group.share.group.name: group.compute_s / step.seconds for group in step.groups}
    return {
        "step_time_s": step.seconds,
        "step_time_uncertainty": mixed_half_width(setting, plan, step),
        "tokens_per_s_per_gpu": rate / cluster.devices,
        "tokens_per_day": rate * 86400,
        "mfu": rate * model / peak,
        "hfu": float(rate * (model + again[0]) / peak),
        "usd_per_million_tokens": cluster.price_per_hour_usd / 3600 / rate * 1e6,
        "kwh_per_million_tokens": cluster.power_watts(busy) / rate * 1e6 / 3.6e6,
    }


def _group(group: GroupStep, step_s: float) -> dict[str, Any]:
    share = group.share
    return {
        "name": share.group.name,
        "device": share.group.cluster.device.name,
        "devices": share.devices,
        "stages": list(share.stages),
        "layers_per_stage": share.layers,
        "replicas": share.replicas,
        "micro_batches": share.micro_batches,
        "micro_batch": share.micro_batch,
        "state_share": share.state.device,
        "busy_share": group.compute_s / step_s,
        "memory": {
            "peak_bytes": group.peak_memory,
            "capacity_bytes": share.group.cluster.device.memory_bytes,
            "fits": group.fits,
        },
    }


def _step(report: dict[str, Any]) -> str:
    half = report["step_time_uncertainty"]
    return seconds(report["step_time_s"]) + ("" if half is None else f" ± {percent(half, 0)}")


def mixed_tables(report: dict[str, Any]) -> list[Table]:
    """The same for people."""
    words = {
        "step": _step(report),
        **({"on the engine": seconds(report["engine"]["step_time_s"])} if "engine" in report else {}),
        "throughput": f"{report['tokens_per_s_per_gpu']:,.0f} tokens/s per GPU, "
        f"{counted(report['tokens_per_day'])} tokens a day",
        "MFU": f"{percent(report['mfu'])} of the peak of all devices together",
        "money, energy": f"{report['usd_per_million_tokens']:.3f} USD and "
        f"{report['kwh_per_million_tokens']:.4f} kWh a million tokens",
        **{f"against {rule}": why for rule, why in report.get("insisted", {}).items()},
    }
    state = any(group["state_share"] != 1 for group in report["groups"])
    rows = [
        [
            group["name"],
            group["device"],
            str(group["devices"]),
            _stages(group["stages"]),
            f"{group['layers_per_stage']:g}",
            str(group["replicas"]),
            f"{group['micro_batches']} of {group['micro_batch']}",
            *([f"{group['state_share']:.2f}"] if state else []),
            percent(group["busy_share"]),
            f"{gibibytes(group['memory']['peak_bytes'])} of {gibibytes(group['memory']['capacity_bytes'])}",
        ]
        for group in report["groups"]
    ]
    work = ("stages", "layers a stage", "replicas", "micro batches", *(["state"] if state else []))
    headings = ("group", "device", "GPUs", *work, "busy", "peak memory")
    title = "Groups; micro batches: count a replica runs in a step, of how many sequences each"
    caption = f"{title}; state: bytes of sharded state over an equal share" if state else title
    return [facts(words, report["title"] or report["model"]), table(headings, rows, caption, left=2)]


def ranked_groups(report: dict[str, Any]) -> list[Table]:
    """A ranking: a plan a line, then what each group carries in the first."""
    rows = [
        [
            str(plan["rank"]),
            Plan.model_validate(plan["plan"]).describe(),
            _work(plan["groups"]),
            str(plan["plan"]["micro_batch"]),
            plan["plan"]["recompute"],
            seconds(plan["engine"]["step_time_s"] if "engine" in plan else plan["step_time_s"]),
            f"{plan['tokens_per_s_per_gpu']:,.0f}",
            significant(plan["usd_per_million_tokens"]),
        ]
        for plan in report["plans"]
    ]
    first = report["plans"][0]
    headings = ("rank", "plan", "work of a stage, or of a replica", "micro", "recompute", "step")
    least = report["least_step_time_s"]
    above = first.get("engine", first)["step_time_s"] / least - 1
    splits = f"{first['title'] or first['model']}: {report['candidates']:,} splits over the groups"
    bound = f"with every GPU busy at its best a step takes {seconds(least)}, rank 1 {percent(above)} more"
    return [
        table((*headings, "tok/s/GPU", "$/Mtok"), rows, f"{splits}; {bound}", left=3),
        *mixed_tables(first),
    ]


def _work(groups: list[dict[str, Any]]) -> str:
    """Stages and layers of each group, or replicas and micro batches where groups carry all stages."""
    by_stage = len({tuple(group["stages"]) for group in groups}) == len(groups)
    one_size = len({group["micro_batch"] for group in groups}) == 1
    parts = (
        f"{group['name']} {len(group['stages'])} x {group['layers_per_stage']:g} layers"
        if by_stage
        else f"{group['name']} {group['replicas']} x {group['micro_batches']} micro batches"
        + ("" if one_size else f" of {group['micro_batch']}")
        for group in groups
    )
    return ", ".join(parts)


def shortage(report: dict[str, Any]) -> str:
    """Reason why the plan does not fit; empty if it fits."""
    short = ", ".join(group["name"] for group in report["groups"] if not group["memory"]["fits"])
    return f"the plan does not fit: devices of {short} have less memory than it needs" if short else ""


def _stages(stages: list[int]) -> str:
    runs: list[list[int]] = []
    for stage in stages:
        if runs and runs[-1][1] == stage - 1:
            runs[-1][1] = stage
        else:
            runs.append([stage, stage])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
