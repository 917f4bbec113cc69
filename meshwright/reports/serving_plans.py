"""Deployments that a search found: table, reasons, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.pictures import searched_pictures
from meshwright.reports.searched_fields import searched_fields
from meshwright.reports.serving_checked import checked_words, describe_check, describe_graphs, graphs_words
from meshwright.reports.serving_columns import MISSES, plan_cells, plan_figures
from meshwright.reports.serving_evidence import describe_errors, error_rows, evidence_words, unproven
from meshwright.reports.serving_shortfall import falls_short, shortfall_words, stored_formats
from meshwright.reports.serving_verdict import (
    EQUAL,
    gap_words,
    money_words,
    prompts_only,
    reason_words,
    serving_headline,
    usd_per_million,
)
from meshwright.reports.tables import facts, table
from meshwright.reports.units import kernels_words, per_second, percent, seconds, significant, with_half_width
from planner.serving.alternatives import BESIDE, FIRST, NEXT, PROVEN, STEADY_ERROR
from planner.serving.attention_sides import POOL
from planner.serving.deployment import scenario_of
from planner.serving.drafts import measured_on
from planner.serving.engine_check import Check
from planner.serving.plan import ReplicaGroup, ServingPlan
from planner.serving.preferred import mechanisms
from planner.serving.question import ServingQuestion
from planner.serving.refine import RefinedServing
from planner.serving.search import ServingSearch
from planner.serving.shapes import choices, drafts_words
from simulator.serving.engines import stands_for
from simulator.serving.question.speculation import Speculation

Runs = Mapping[int, RefinedServing]
"""Highest rates found on the event engine, by the index of the deployment."""


def describe_deployments(search: ServingSearch, refined: Runs, look: Check | None = None) -> dict[str, Any]:
    """A search with documented keys."""
    question = search.question
    best = {} if search.most is None else {"most_goodput": _described(search, {}, search.most, 0)}
    unasked = {"objective_default": True, **best} if question.unasked else {}
    return {
        "question": {
            "model": question.model.name,
            "cluster": question.cluster.name,
            "device": question.cluster.device.name,
            "gpus": question.devices,
            "engine": question.engine,
            "rate": question.rate,
            **({} if question.concurrency is None else {"concurrency": question.concurrency}),
            "prompt_tokens": question.prompt,
            "output_tokens": question.output,
            "ttft": question.workload.slo.ttft,
            "tpot": question.workload.slo.tpot,
            "e2e": question.workload.slo.e2e,
            "slo_share": question.workload.slo.share,
            **({"repeated_prompt_tokens": question.repeated} if question.repeated else {}),
            "watts": question.watts,
            **({} if question.site is None else {"site": question.site.source}),
            "types": [
                {"device": variant.name, "available": variant.devices, "usd_per_hour": variant.usd_per_hour}
                for variant in question.types
            ],
        },
        "objective": question.objective,
        **unasked,
        "deployments": [
            {
                "shown_as": why,
                **_described(search, refined, plan, index),
                **describe_graphs(question, plan),
            }
            for index, (plan, why) in enumerate(zip(search.plans, search.reasons, strict=True))
        ],
        **(
            {"other_formats": [_described(search, {}, variant.plan, 0) for variant in search.variants]}
            if search.variants
            else {}
        ),
        **(
            {"with_assumed_acceptance": _described(search, {}, search.guessed, 0)}
            if search.guessed is not None
            else {}
        ),
        "candidates": search.candidates,
        "scored": search.scored,
        "removed": search.removed,
        "runner_up_gap": search.runner_up_gap,
        **describe_check(look),
    }


def _described(search: ServingSearch, refined: Runs, plan: ServingPlan, index: int) -> dict[str, Any]:
    scenario = scenario_of(search.question, plan)
    report = {
        "deployment": scenario["deployment"],
        **plan_figures(plan),
        "expected_errors": describe_errors(search, plan),
        "pools": [_group(group) for group in plan.groups],
    }
    if index in refined:
        run = refined[index]
        report["engine"] = (
            {"problem": run.problem}
            if run.problem
            else {"goodput_requests_s": run.goodput, "half_width_requests_s": run.half_width}
        )
    return report


def _group(group: ReplicaGroup) -> dict[str, Any]:
    pool = group.shape.pool
    degrees = {
        name: getattr(pool, name)
        for name in ("tensor", "data", "pipeline", "expert", "weights", "kv", "clock_mhz", "power_cap_w")
    }
    if pool.speculation is not None:
        degrees["speculation"] = drafts_words(pool.speculation)
    side = group.shape.attention
    if side is not None:
        ratio = side.ratio(group.shape.pool.devices)
        degrees["attention"] = {
            "ratio": ratio,
            "micro_batches": side.batches,
            "tensor": side.pool.tensor,
            "replicas": side.pool.replicas * group.replicas,
        }
    limits = {"token_budget": group.budget, "max_sequences": group.sequences}
    device = group.shape.offer.name
    return {"role": group.role, "device": device, "replicas": group.replicas, **degrees, **limits}


def deployment_tables(
    search: ServingSearch, refined: Runs, look: Check | None = None, more: bool = False
) -> list[Table | str]:
    """Deployments for people, the first choice first, below a verdict.

    Args:
        search: the search.
        refined: rates found on the event engine.
        look: what the event engine said of the first deployments by default.
        more: also engine limits, energy, what was searched and what each rule removed.
    """
    columns = _columns(search, refined, more)
    rows = list(zip(*columns.values(), strict=True))
    ranking = table(list(columns), rows, _title(search), left=2 + more)
    verdict = _shortfall(search) or serving_headline(search)
    tables = [*verdict, ranking, *_missing(search), *checked_words(look), *graphs_words(search)]
    tables += [*_most_words(search), *_gap(search)]
    tables += [*_choices(search), *_variants(search), _basis(search, more)]
    removed = [[name, f"{count:,}"] for name, count in search.removed.items() if count]
    removed += [["all", f"{search.candidates:,}"]]
    return [*tables, table(("removed by rule", "candidates"), removed)] if more else tables


def _missing(search: ServingSearch) -> list[str]:
    """At which rate the figures of rows hold that carry less than the rate asked for."""
    if all(plan.meets for plan in search.plans):
        return []
    return [f"Rows marked{MISSES} carry less than asked; their other figures are at what they carry."]


def _shortfall(search: ServingSearch) -> list[str]:
    """A first line where no deployment carries the stated rate."""
    return [f"{shortfall_words(search, search.plans[0])}."] if falls_short(search) else []


def _most_words(search: ServingSearch) -> list[str]:
    """The deployment with the most goodput, beside the cheapest."""
    if search.most is None or not search.plans:
        return []
    best = search.most
    carries = f"{best.describe()} carries {per_second(best.goodput)}/s"
    return [f"Most goodput on all GPUs: {carries} (--objective goodput)."]


def _choices(search: ServingSearch) -> list[Table]:
    """Why each deployment is shown, and others: with assumed acceptance, cheapest, fastest for one user."""
    if not search.plans:
        return []
    # Rows of plainer servers say nothing of a mechanism that the verdict calls unmeasured.
    rows = {} if mechanisms(search.plans[0]) else {"first choice": evidence_words(search, search.plans[0])}
    rows |= _reasons(search)
    if POOL in search.question.pools and not search.apart:
        rows[BESIDE] = "none meets the targets on these GPUs"
    if search.guessed is not None:
        plan = search.guessed
        rate = per_second(plan.goodput)
        rows["with assumed acceptance"] = f"{plan.describe()}, {rate}/s; no source for this model"
    # The event engine may find that a deployment carries nothing within the targets.
    cheap = min(search.plans, key=lambda plan: plan.usd_per_hour / max(plan.goodput, 1e-9))
    if cheap.usd_per_hour and cheap is not search.plans[0]:
        rows["most goodput for each $"] = cheap.describe()
    if search.fastest is not None:
        plan, first, token = search.fastest
        drafts = plan.groups[-1].shape.pool.speculation
        note = "; acceptance assumed" if drafts is not None and drafts.assumed else ""
        times = f"TTFT {seconds(first)}" + ("" if prompts_only(search) else f", TPOT {seconds(token)}")
        rows["fastest for one user"] = f"{plan.describe()}: {times}{note}"
    return [facts(rows, "How to choose")]


def _reasons(search: ServingSearch) -> dict[str, str]:
    """Why the deployments behind the first are shown, and what is left of its figure."""
    rows = {}
    for plan, why in zip(search.plans, search.reasons, strict=True):
        if why not in (FIRST, NEXT):
            words = reason_words(search, why, plan)
            rows[why] = f"{words}; {evidence_words(search, plan)}" if why == PROVEN else words
    return rows


VARIANTS = 6
"""Rows of other formats."""


def _variants(search: ServingSearch) -> list[Table]:
    """The best layouts in other formats, the most goodput for each $ first."""
    if not search.variants:
        return []
    names: Mapping[str, list[str]] = dict(search.question.model.checkpoints.items())
    rows: list[list[str]] = []
    ranked = sorted(search.variants, key=lambda variant: variant.plan.usd_per_hour / variant.plan.goodput)
    for variant in ranked[:VARIANTS]:
        published = variant.weights == search.question.model.checkpoint
        from_ = "this checkpoint" if published else (names.get(variant.weights) or ["another checkpoint"])[0]
        plan = variant.plan
        latency = plan.ttft_s if prompts_only(search) else plan.tpot_s
        cells = [plan.describe(), f"{per_second(plan.goodput)}/s", seconds(latency), str(plan.devices)]
        row = [*cells, significant(usd_per_million(search, plan)), from_]
        if row not in rows:  # Plans that differ in limits alone are one row.
            rows.append(row)
    latency = "TTFT" if prompts_only(search) else "TPOT"
    headings = ("other formats", "goodput", latency, "GPUs", "$/Mtok", "weights from")
    return [table(headings, rows, left=1)]


def _title(search: ServingSearch) -> str:
    question = search.question
    slo = question.workload.slo
    targets = [
        f"{name} {seconds(limit)}"
        for name, limit in (("TTFT", slo.ttft), ("TPOT", slo.tpot), ("e2e", slo.e2e))
        if limit is not None
    ]
    within = f", {percent(slo.share, 0)} within {', '.join(targets)}" if targets else ""
    out = "none" if prompts_only(search) else f"{question.output:,.0f}"
    return f"{question.model.name} on up to {_devices(search)}: {question.prompt:,.0f} in, {out} out{within}"


def _devices(search: ServingSearch) -> str:
    question = search.question
    types = " and ".join(f"{offer.devices} {offer.name}" for offer in question.types)
    total = sum(offer.devices for offer in question.types)
    if len(question.types) > 1 and question.devices < total:
        types += f" ({question.devices} in all)"
    return types if question.watts is None else f"{types} within {question.watts:,.0f} W"


def _columns(search: ServingSearch, refined: Runs, more: bool) -> dict[str, Sequence[str]]:
    """Cells of the ranking by heading."""
    ranks = range(len(search.plans))
    columns: dict[str, Sequence[str]] = {
        "rank": [str(rank + 1) for rank in ranks],
        "deployment": [plan.describe() for plan in search.plans],
    }
    for heading, cells in plan_cells(search, more):
        columns[heading] = cells
        if heading == "goodput" and refined:
            columns["engine"] = [_engine_words(refined.get(rank)) for rank in ranks]
    return columns


def _engine_words(run: RefinedServing | None) -> str:
    """The rate of a deployment on the event engine."""
    return "" if run is None else run.problem or f"{with_half_width(run.goodput, run.half_width)}/s"


def _gap(search: ServingSearch) -> list[str]:
    gap = search.runner_up_gap
    # The verdict says what a first plan that is not the best gives up.
    return [] if gap is None or gap < EQUAL else [gap_words(search.question.objective, gap)]


def _basis(search: ServingSearch, more: bool) -> Table:
    question = search.question
    devices = [offer.cluster.device for offer in question.types]
    calibrations = [(device.kernels.calibration, device.borrows) for device in devices]
    kernels = [kernels_words(entry.name, entry.status, borrowed) for entry, borrowed in calibrations]
    prices = [
        f"{offer.name if len(question.types) > 1 else ''} {offer.usd_per_hour:g}".strip()
        for offer in question.types
    ]
    listed = all(offer.usd_per_hour == offer.cluster.device.price_per_hour_usd for offer in question.types)
    rate = "the largest within the targets" if question.rate is None else f"{question.rate:g} requests/s"
    if question.concurrency is not None:
        rate = f"{question.concurrency:,} requests in flight, dealt evenly"
    if falls_short(search):
        rate = "the rate that each carries"
    return facts(
        {
            "engine": stands_for(question.engine) or question.engine,
            "weights": _weights_words(search),
            **({} if more or not search.plans else {"limits": _limit_words(search.plans[0])}),
            **_levers(search, more),
            "latencies at": rate + "; TTFT is that of the share that must meet it, TPOT and e2e are means",
            "model": f"steady state, {percent(STEADY_ERROR, 0)} off the event engine in the median; "
            "--refine N runs the best N there",
            "kernels": ", ".join(dict.fromkeys(kernels)),
            **error_rows(search),
            **unproven(search),
            **({} if question.site is None else {"site": f"learned from {question.site.source}"}),
            **searched_pictures(question.pictures),
            **({"left out": question.model.left_out} if question.model.left_out else {}),
            "price": f"{', '.join(prices)} $ an hour and device{', list price' if listed else ''}",
            **({"$/Mtok": money} if (money := money_words(search)) else {}),
        },
        "What this rests on",
    )


def _limit_words(plan: ServingPlan) -> str:
    """Tokens and sequences of a step that the first deployment's figures hold for."""
    limits = dict.fromkeys(f"{group.budget:,} tokens, {group.sequences:,} sequences" for group in plan.groups)
    return f"a step of rank 1 has at most {', then '.join(limits)}; --more has those of all"


def _levers(search: ServingSearch, more: bool) -> dict[str, str]:
    """Rows on what a search tried and assumed: drafts, reuse of prefixes, and with ``more`` fields."""
    question = search.question
    rows = {}
    tried = {drafts_words(draft): draft for draft in _drafts(question)}
    if tried:
        details = ""
        for word, assumed in (("assumed", True), ("stated", False)):
            yields = [
                f"{name} {draft.mean():.3g} tokens a step{measured_on(draft, question.model)}"
                for name, draft in tried.items()
                if draft.assumed == assumed
            ]
            details += f"; acceptance {word}: {', '.join(yields)}" if yields else ""
        rows["speculation"] = (
            f"tried: none, {', '.join(tried)}{details}" if len(tried) > 1 else f"{next(iter(tried))}{details}"
        )
    if question.repeated:
        share = percent(question.repeated / question.prompt, 0)
        rows["prefixes"] = f"{share} of prompt tokens repeat; caches hold them, beside running sequences"
    if more:
        rows["searched"] = ", ".join(searched_fields(search.question))
    return rows


def _drafts(question: ServingQuestion) -> list[Speculation]:
    """Speculation that the search tried."""
    drafts = {
        drafts_words(draft): draft
        for fields in choices(question)
        if (draft := fields["speculation"]) is not None
    }
    return [drafts[name] for name in sorted(drafts)]


def _weights_words(search: ServingSearch) -> str:
    """Format of the weights, and whether it is the checkpoint's."""
    model = search.question.model
    stored = sorted(set().union(*(stored_formats(plan) for plan in search.plans)))
    words = ", ".join(stored)
    if stored != [model.checkpoint]:
        return (
            f"{words}; the checkpoint holds {model.checkpoint}: another checkpoint, or quantised when loaded"
        )
    parts = f" ({model.parts.describe()})" if model.parts else ""
    kv = f", KV in {model.checkpoint_kv}" if model.checkpoint_kv else ""
    return f"{words}, as the checkpoint{parts}{kv}"
