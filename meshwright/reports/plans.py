"""Predicted plans: cost, breakdown of time, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from meshwright.reports.documents import describe_documents, documents_words
from meshwright.reports.insisted import describe_insisted
from meshwright.reports.plan_evidence import UNPROVEN, describe_evidence, evidence_words
from meshwright.reports.tables import facts, table
from meshwright.reports.tiers import placed, tier_rows, tier_shortage, tiers_of
from meshwright.reports.units import counted, gibibytes, percent, seconds, significant
from planner.training.metrics import COMMUNICATION, Metrics
from planner.training.prediction import Prediction
from planner.training.search import SearchResult
from planner.training.shortlist import ShortlistRow
from simulator.levers import ENTRIES, VARIED
from simulator.plan import Plan
from simulator.rules import insisted
from simulator.setting import Setting
from simulator.uncertainty import chance_to_fit, memory_band, over_promised
from simulator.workload import STEP_KEYS

ONCE = {
    "bubble": "pipeline bubble",
    "recompute": "recomputation",
    "optimizer": "optimizer",
    "offload": "copies and updates off the device",
    "sync": "outer exchanges",
    "launch": "waiting for kernel launches",
    "variation": "waiting for the slowest device",
}
"""Parts of a step that are neither kernels of the model nor communication."""

COUNTS_DIFFER = 0.1
"""Relative gap of causal MFU below MFU from which tables show both."""

WORDS = {
    "gradients": "data (gradients)",
    "parameters": "data (parameters)",
    "output": "output layer sums",
    "to host": "copies to the host",
    "from host": "copies from the host",
    "host": "update on the host",
}


def describe_setting(setting: Setting) -> dict[str, Any]:
    """The question, with documented keys, and those of the workload that differ from their defaults."""
    return {
        "model": setting.model.name,
        "cluster": setting.cluster.name,
        "device": setting.cluster.device.name,
        "gpus": setting.cluster.devices,
        "framework": setting.framework.name,
        "seq_len": setting.training.seq_len,
        "global_batch": setting.training.global_batch,
        "precision": setting.training.precision,
        **setting.training.model_dump(mode="json", exclude_defaults=True, exclude={*STEP_KEYS}),
        **({"site": setting.site.source} if setting.site else {}),
        **({"allow": list(setting.allow)} if setting.allow else {}),
    }


def describe_plan(prediction: Prediction, index: int) -> dict[str, Any]:
    """One plan and its predictions, with documented keys."""
    step = prediction.step
    times = {name: float(part[index]) for name, part in step.seconds.items()}
    return {
        "plan": prediction.plans.plan(index).model_dump(mode="json"),
        **describe_insisted(prediction.setting, prediction.plans.plan(index)),
        **_figures(prediction.metrics, index),
        "step_time_uncertainty": _uncertainty(prediction, index),
        "differs_from_first": _differs(prediction, index),
        "evidence": describe_evidence(prediction.confidence, index),
        "time_breakdown_s": times,
        "communication": {
            name: {"total_s": float(np.ravel(total)[index]), "exposed_s": times.get(name, 0.0)}
            for name, total in step.communication.items()
        },
        "memory": _memory(prediction, index),
        **describe_documents(prediction, index),
    }


def describe_search(
    result: SearchResult, prediction: Prediction, more: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A search with documented keys; ``more`` adds to each plan."""
    fastest = float(np.min(result.step.time, initial=np.inf))
    plans = []
    for index, extra in enumerate(more):
        row = result.rows[index] if result.rows else ShortlistRow(())
        report = {
            "families": list(row.families),
            "near_duplicates": list(row.also),
            "slower_than_fastest": float(result.step.time[index]) / fastest - 1,
            **_order(prediction, index),
        }
        plans.append(describe_plan(prediction, index) | report | extra)
    longer = over_promised(prediction.setting)
    return {
        "plans": plans,
        **({"expected_step_s": longer * float(result.step.time[0])} if longer != 1 and plans else {}),
        "headroom": result.space.headroom,
        "scored": result.scored,
        "removed": result.removed,
        "candidates": result.candidates,
        "objective": result.objective,
        "question": describe_setting(result.setting),
    }


def figures(metrics: Metrics) -> dict[str, np.ndarray]:
    """Figures of merit under their documented keys, shape (plans,)."""
    return {
        "step_time_s": metrics.step_time_s,
        "tokens_per_s_per_gpu": metrics.tokens_per_s_per_device,
        "mfu": metrics.model_flops_utilisation,
        "mfu_causal": metrics.causal_flops_utilisation,
        "hfu": metrics.hardware_flops_utilisation,
        "bubble_share": metrics.bubble_share,
        "exposed_communication_share": metrics.exposed_communication_share,
        "tokens_per_day": metrics.tokens_per_day,
        "usd_per_million_tokens": metrics.usd_per_million_tokens,
        "kwh_per_million_tokens": metrics.kwh_per_million_tokens,
    }


def _figures(metrics: Metrics, index: int) -> dict[str, float]:
    return {name: float(column[index]) for name, column in figures(metrics).items()}


def _uncertainty(prediction: Prediction, index: int) -> float | None:
    """The band's half-width as a share of the step; None where the engine timed it, without parts."""
    confidence = prediction.confidence
    return None if confidence is None else float(confidence.half_width[index])


def _differs(prediction: Prediction, index: int) -> bool:
    """Whether a plan's step differs from the fastest by more than the median error of their ratio."""
    confidence = prediction.confidence
    return confidence is not None and bool(confidence.differs[index])


def _order(prediction: Prediction, index: int) -> dict[str, float]:
    """Chance of a plan to be the fastest of those shown, and what it is expected to lose."""
    confidence = prediction.confidence
    if confidence is None:
        return {}
    return {
        "chance_best": float(confidence.chance_best[index]),
        "expected_loss": float(confidence.expected_loss[index]),
        "slower_than_fastest_uncertainty": float(confidence.ratio_half_width[index]),
    }


def _memory(prediction: Prediction, index: int) -> dict[str, Any]:
    peak, capacity = float(prediction.memory.peak[index]), prediction.setting.cluster.device.memory_bytes
    low, high = memory_band(prediction.setting)
    tiers = tiers_of(prediction, index)
    return {
        "peak_bytes": peak,
        "peak_band_bytes": [peak * low, peak * high],
        "capacity_bytes": capacity,
        "fits": peak <= capacity and all(tier["fits"] for tier in tiers.values()),
        **({"tiers": tiers} if tiers else {}),
        "chance_to_fit": float(chance_to_fit(np.array(peak), capacity, prediction.setting)),
        "stages": [_stage(prediction, index, row) for row in _present(prediction, index)],
    }


def _present(prediction: Prediction, index: int) -> list[int]:
    return np.flatnonzero(prediction.memory.present[:, index]).tolist()


def _stage(prediction: Prediction, index: int, row: int) -> dict[str, Any]:
    stages = prediction.step.stages
    return {
        "stage": stages.name(row),
        "count": int(stages.count[row, index]),
        "layers": float(stages.total[row, index]),
        "total_bytes": float(prediction.memory.stages[row, index]),
        "parts_bytes": prediction.memory.breakdown(index, row),
    }


SHOWN_GAP = 5e-4
"""Share of a step from which a plan is said to be slower."""
ODDS = ("best", "loss")
"""Columns of a ranking that ``--more`` asks for."""


def ranked(prediction: Prediction, wide: bool, more: bool = True) -> Table:
    """Ranking of plans: one per line, or one per column in a narrow terminal; without odds unless asked."""
    cells = rank_columns(prediction)
    columns = {name: column for name, column in cells.items() if more or name not in ODDS}
    if wide:
        rows = list(zip(*columns.values(), strict=True))
        return table(list(columns), rows, left=2)
    headings = ["rank", *columns.pop("rank")]
    return table(headings, [[name, *values] for name, values in columns.items()])


def rank_columns(prediction: Prediction) -> dict[str, list[str]]:
    """Cells of a ranking by heading, one per plan; headings without a word in any cell are left out."""
    metrics, plans = prediction.metrics, list(prediction.plans)
    capacity = prediction.setting.cluster.device.memory_bytes
    fits = chance_to_fit(prediction.memory.peak, capacity, prediction.setting)
    many = range(len(plans))
    cells = {
        "rank": [str(index + 1) for index in many],
        "plan": [_named(prediction, index) for index in many],
        "micro": [str(plan.micro_batch) for plan in plans],
        "schedule": [plan.schedule if plan.pipeline > 1 else "" for plan in plans],
        "recompute": [recomputed(plan).replace("+", " + ") for plan in plans],
        **_levers(plans),
        "sharding": [sharding(plan) for plan in plans],
        **_off_device(plans),
        "step": [seconds(value) for value in metrics.step_time_s],
        "slower": [_slower(value, metrics.step_time_s) for value in metrics.step_time_s],
        **_known(prediction),
        "tok/s/GPU": [f"{value:,.0f}" for value in metrics.tokens_per_s_per_device],
        "MFU": [percent(value) for value in metrics.model_flops_utilisation],
        **_causal(metrics),
        f"of {gibibytes(capacity)}": [gibibytes(value) for value in prediction.memory.peak],
        "fits with": [chance(value) for value in fits],
        "bubble": [percent(value) for value in metrics.bubble_share],
        "comm": [percent(value) for value in metrics.exposed_communication_share],
        "$/Mtok": [significant(value) for value in metrics.usd_per_million_tokens],
        "kWh/Mtok": [significant(value) for value in metrics.kwh_per_million_tokens],
    }
    return {name: column for name, column in cells.items() if any(column)}


def _named(prediction: Prediction, index: int) -> str:
    """The degrees of a plan, marked where measured runs do not bear out its promise."""
    confidence, words = prediction.confidence, prediction.plans.plan(index).describe()
    return f"{words} {UNPROVEN}" if confidence is not None and confidence.evidence[index].marked else words


def _known(prediction: Prediction) -> dict[str, list[str]]:
    """Bands, chances to be the fastest and evidence of the plans."""
    confidence = prediction.confidence
    if confidence is None:
        return {}
    return {
        "±": [percent(value, 0) for value in confidence.half_width],
        "best": [chance(value) for value in confidence.chance_best],
        "loss": [percent(value) for value in confidence.expected_loss],
        "runs": [str(evidence.fewest or "none") for evidence in confidence.evidence],
    }


def counts_differ(metrics: Metrics) -> bool:
    """Whether MFU and causal MFU differ enough to show both."""
    full, causal = metrics.model_flops_utilisation, metrics.causal_flops_utilisation
    return bool(np.any(causal < (1 - COUNTS_DIFFER) * full))


def _causal(metrics: Metrics) -> dict[str, list[str]]:
    if not counts_differ(metrics):
        return {}
    return {"causal MFU": [percent(value) for value in metrics.causal_flops_utilisation]}


def _slower(step_s: float, all_s: np.ndarray) -> str:
    """Slowdown of a step against the fastest of the table."""
    gap = step_s / float(np.min(all_s)) - 1
    return f"+{percent(gap)}" if gap >= SHOWN_GAP else ""


def chance(share: float) -> str:
    """A probability in whole percent, never rounded to certainty."""
    return percent(min(max(share, 0.01), 0.99), 0)


def _off_device(plans: Sequence[Plan]) -> dict[str, list[str]]:
    """Shares of state off the device, where a plan of the table has any."""
    if all(plan.place is None for plan in plans):
        return {}
    return {"off device": [placed(plan.place) if plan.place else "none" for plan in plans]}


def recomputed(plan: Plan) -> str:
    """What a plan recomputes: nothing, modules by name, or whole layers."""
    if plan.recompute != "selective" or plan.recompute_modules is None:
        return plan.recompute
    return "+".join(plan.recompute_modules)


def _levers(plans: Sequence[Plan]) -> dict[str, list[str]]:
    """Dispatcher, expert kernels, graphs, overlap and loss, where a plan of the table states any."""
    words = [lever_words(plan) for plan in plans]
    return {"levers": words} if any(words) else {}


def lever_words(plan: Plan) -> str:
    """What a plan chooses beyond its degrees, apart from recomputation."""
    levers = dict.fromkeys((*VARIED, *ENTRIES.values()))
    stated = ((lever.words, getattr(plan, lever.name)) for lever in levers if lever.words)
    return ", ".join(filter(None, (words(value) for words, value in stated if value is not None)))


def sharding(plan: Plan) -> str:
    """States sharded over data-parallel ranks, in the field's words."""
    if plan.zero == 0:
        return "none"
    return f"ZeRO-{plan.zero}" + (f" in {plan.shard_group}" if plan.shard_group else "")


def whole_plan(prediction: Prediction, title: str = "") -> list[Table]:
    """Everything about the first plan, for people."""
    return [_headline(prediction, title, 0), _time(prediction, 0), _memory_table(prediction, 0)]


def _headline(prediction: Prediction, title: str, index: int) -> Table:
    plan, setting = prediction.plans.plan(index), prediction.setting
    merit, memory = _figures(prediction.metrics, index), _memory(prediction, index)
    needed, there = gibibytes(memory["peak_bytes"]), gibibytes(memory["capacity_bytes"])
    layout = f"{plan.describe()}, micro batch {plan.micro_batch}, {plan.schedule}"
    share, tokens = _uncertainty(prediction, index), setting.training.tokens
    doubt = "" if share is None else f" ± {percent(share, 0)}"
    rate = f"{merit['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU"
    words = {
        "plan": ", ".join(
            filter(
                None,
                (layout, f"recompute {recomputed(plan)}", f"sharding {sharding(plan)}", lever_words(plan)),
            )
        ),
        "step": f"{seconds(merit['step_time_s'])}{doubt} for {counted(tokens)} tokens",
        **documents_words(prediction, index),
        "throughput": f"{rate}, {counted(merit['tokens_per_day'])} tokens a day",
        "utilisation": f"MFU {percent(merit['mfu'])}, HFU {percent(merit['hfu'])}"
        + (f", causal MFU {percent(merit['mfu_causal'])}" if counts_differ(prediction.metrics) else ""),
        "memory": f"{needed} of {there}, fits with {chance(memory['chance_to_fit'])}"
        + ("" if memory["fits"] else ": does not fit"),
        "per million tokens": f"{significant(merit['usd_per_million_tokens'])} $, "
        f"{significant(merit['kwh_per_million_tokens'])} kWh",
        **evidence_words(prediction.confidence, index),
        **({"site": f"learned from {setting.site.source}"} if setting.site else {}),
        **{f"against {rule}": why for rule, why in insisted(setting, plan).items()},
    }
    return facts(words, title)


def _time(prediction: Prediction, index: int) -> Table:
    """Breakdown of the step: kernels, exposed communication, and the rest."""
    step = prediction.step
    parts = {name: float(part[index]) for name, part in step.seconds.items()}
    total = float(step.time[index])
    rows: list[tuple[str, str, float, float | None]] = []
    for name, part in parts.items():
        if name not in COMMUNICATION and name not in ONCE:
            rows.append(("compute", name.replace("_", " "), part, None))
    for name in COMMUNICATION:
        if name in step.communication or name in parts:
            full = float(
                np.ravel(step.communication.get(name, 0.0))[index if name in step.communication else 0]
            )
            rows.append(("communication", WORDS.get(name, name), parts.get(name, 0.0), full))
    rows += [("", words, parts[name], None) for name, words in ONCE.items() if name in parts]
    cells = [
        [group, name, seconds(part), percent(part / total), "" if full is None else seconds(full)]
        for group, name, part, full in rows
        if part or full
    ]
    cells.append(["step", "", seconds(total), percent(1.0), ""])
    return table(("", "part", "time", "of step", "with what is hidden"), cells, "Where the time goes", left=2)


def _memory_table(prediction: Prediction, index: int) -> Table:
    stages = _memory(prediction, index)["stages"]
    headings = ["memory of a device", *(_stage_words(stage) for stage in stages)]
    names = [name for name in stages[0]["parts_bytes"] if any(stage["parts_bytes"][name] for stage in stages)]
    rows = [[name, *(gibibytes(stage["parts_bytes"][name]) for stage in stages)] for name in names]
    rows.append(["total", *(gibibytes(stage["total_bytes"]) for stage in stages)])
    rows += tier_rows(prediction, index, len(stages))
    return table(headings, rows, "Memory by pipeline stage")


def shortage(prediction: Prediction, index: int = 0) -> str:
    """Excess over the devices' memory, in words; empty if the plan fits."""
    memory = _memory(prediction, index)
    if memory["fits"]:
        return ""
    if memory["peak_bytes"] <= memory["capacity_bytes"]:
        return tier_shortage(prediction, index)
    fullest = max(memory["stages"], key=lambda stage: stage["total_bytes"])
    part, size = max(fullest["parts_bytes"].items(), key=lambda item: item[1])
    missing = gibibytes(memory["peak_bytes"] - memory["capacity_bytes"])
    needed, there = gibibytes(memory["peak_bytes"]), gibibytes(memory["capacity_bytes"])
    return (
        f"the plan does not fit: a device of the {fullest['stage']} stage needs {needed} and has {there}, "
        f"{missing} short; most of it is {part} ({gibibytes(size)})"
    )


def _stage_words(stage: dict[str, Any]) -> str:
    many = f" x {stage['count']}" if stage["count"] > 1 else ""
    return f"{stage['stage']}{many} ({stage['layers']:g} layers)"
