"""Tables of a serving run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from hwmodels.grids import grids
from meshwright.reports.pictures import pictures_key, pictures_words
from meshwright.reports.served_verdict import overload_words
from meshwright.reports.serving_evidence import error_words, run_errors
from meshwright.reports.tables import facts, table
from meshwright.reports.units import counted, per_second, percent, seconds
from simulator.serving.bytes_moved import moves_figures
from simulator.serving.engines import stands_for
from simulator.serving.fleet.row_power import RowPower
from simulator.serving.kv_states import AttentionReplicas
from simulator.serving.metrics import FEW, Latency, ServingMetrics
from simulator.serving.replica.records import Record
from simulator.serving.result import ServingResult
from simulator.serving.setting import PoolSetting
from simulator.serving.steady.alone import alone, share_alone

NAMES = {
    "ttft": "time to first token (TTFT)",
    "tpot": "time per output token (TPOT)",
    "itl": "gap between tokens (ITL)",
    "e2e": "whole request (e2e)",
    "queue": "waiting before the first step",
}
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")


def serving_tables(result: ServingResult) -> list[Table]:
    """The run, its latencies, and its figures of merit."""
    return [
        facts(setting_facts(result), result.setting.title),
        table(*latency_rows(result)),
        facts(figures(result) | error_words(run_errors(result))),
    ]


def latency_rows(result: ServingResult) -> tuple[tuple[str, ...], list[list[str]]]:
    """Columns and rows of the latencies; ± is what one of ten measured servers lies beyond."""
    errors = run_errors(result)
    rows = [
        [
            NAMES[name],
            *(seconds(getattr(latency, point)) for point in PERCENTILES),
            percent(errors[name].p90, 0) if name in errors else "",
        ]
        for name, latency in result.metrics.latencies.items()
        if isinstance(latency, Latency)
    ]
    if errors:
        return ("latency", *PERCENTILES, "±"), rows
    return ("latency", *PERCENTILES), [row[:-1] for row in rows]


def seeds_table(report: Mapping[str, Any]) -> Table:
    """Figures over the seeds of a run: median, least and most."""
    rows = [
        [name, *(f"{value:,.0f}" if name == "tok/s" else seconds(value) for value in _middle(values))]
        for name, values in report["by_seed"].items()
    ]
    title = f"{len(report['seeds'])} seeds; below, seed {report['seeds'][0]}"
    return table(("figure", "median", "least", "most"), rows, title)


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    return median(values), min(values), max(values)


def setting_facts(result: ServingResult) -> dict[str, str]:
    """What is served, on which pools, with which pictures."""
    setting = result.setting
    return {
        "model": setting.model.name,
        "cluster": ", ".join(
            f"{count:,} x {cluster.device.name} ({cluster.name})" for cluster, count in setting.occupied
        ),
        **{f"pool {pool.name}": describe_pool(pool) for pool in setting.pools},
        **{
            f"pool {replicas.pool.name or replicas.pool.role}": _attention(replicas)
            for replicas in setting.attention
        },
        **_releases(result),
        **_images(result),
        "router": setting.router.name,
        **({"site": f"learned from {', '.join(sites)}"} if (sites := setting.sites) else {}),
        **({"left out": left_out} if (left_out := setting.model.left_out) else {}),
    }


def _releases(result: ServingResult) -> dict[str, str]:
    """Presets that stand for stated releases; empty where each release has its own."""
    words = dict.fromkeys(stands_for(pool.pool.engine) for pool in result.setting.pools)
    return {"engine": "; ".join(filter(None, words))} if any(words) else {}


def _images(result: ServingResult) -> dict[str, str]:
    """Images of a request, the tower that encodes them, and where it runs; empty without images."""
    pictures, encoder = result.setting.pictures, result.fleet.encoder
    if pictures is None:
        return {}
    words = pictures_words(pictures)
    if encoder is None:
        return {pictures_key(pictures): f"{words}, in the prompts' steps"}
    pool = encoder.pool
    cut = f"TP{pool.pool.tensor}" if pool.pool.tensor > 1 else "one GPU"
    return {
        f"pool {pool.name}": f"{pool.pool.replicas} x {cut} {pool.cluster.device.name}, "
        f"{seconds(encoder.host_s + encoder.seconds)} a request",
        pictures_key(pictures): words,
    }


def _attention(replicas: AttentionReplicas) -> str:
    """A pool that holds the KV of another, in one line."""
    degree = f"TP{replicas.pool.tensor}" if replicas.pool.tensor > 1 else "one GPU"
    return f"{replicas.pool.replicas} x {degree} {replicas.cluster.device.name}, KV and attention of decodes"


def describe_pool(pool: PoolSetting) -> str:
    """A pool in one line."""
    plan, options = pool.pool, pool.options
    degrees = {"TP": plan.tensor, "DP": plan.data, "PP": plan.pipeline, "EP": plan.expert}
    cut = " ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1) or "one GPU"
    engine = plan.engine if isinstance(plan.engine, str) else "own engine"
    device = f" {pool.cluster.device.name}" if plan.cluster is not None else ""
    power = f", {plan.clock_mhz:,.0f} MHz" if plan.clock_mhz else ""
    power += f", {plan.power_cap_w:,.0f} W a device" if plan.power_cap_w else ""
    kv = f" in {plan.kv}" if plan.kv else ""
    return (
        f"{plan.replicas} x {cut}{device}{power}, {plan.weights} weights, {engine}, {pool.scheduler.name} "
        f"(budget {options.token_budget:,} tokens, {options.max_sequences:,} sequences), "
        f"KV for {counted(pool.costs.kv_blocks * options.block_tokens)} tokens{kv}"
    )


def figures(result: ServingResult) -> dict[str, str]:
    """Figures of merit as names and words."""
    metrics = result.metrics
    slo = result.setting.serving.slo
    rows = {
        "requests": _requests(metrics),
        "arrivals": f"{per_second(metrics.arrival_rate)} requests/s"
        if metrics.arrival_rate
        else "all at once",
        "completed": f"{per_second(metrics.request_rate)} requests/s",
        "throughput": f"{metrics.output_rate:,.0f} output tokens/s, "
        f"{metrics.input_rate:,.0f} prompt tokens/s",
        "per GPU": f"{metrics.output_rate_per_gpu:,.1f} output tokens/s, "
        f"{metrics.total_rate_per_gpu:,.1f} tokens/s in all",
    }
    if metrics.slo_share is not None and metrics.goodput is not None:
        targets = ", ".join(
            f"{name.upper()} {seconds(target)}" for name, target in _targets(result) if target is not None
        )
        verdict = "met" if metrics.slo_share >= slo.share else "missed"
        rows["goodput"] = (
            f"{per_second(metrics.goodput)} requests/s; {percent(metrics.slo_share)} of requests within "
            f"{targets} (target {percent(slo.share)}: {verdict})"
        )
        if verdict == "missed" and metrics.requests:
            rows["alone"] = _alone(result)
    return rows | {
        "occupancy": f"{metrics.running:.1f} sequences in a step of a replica, {metrics.waiting:.1f} waiting",
        "KV use": f"{percent(metrics.kv_use)} of blocks, hit rate {percent(metrics.hit_rate)}, "
        f"{metrics.preemptions:,} preemptions",
        "busy": f"{percent(metrics.busy)} of replica time: {_kinds(metrics)}",
        "cost": f"${metrics.dollars_per_million:.3g} and {metrics.joules_per_million / 1e6:.3g} MJ "
        "per million output tokens",
        **dict(_notes(result)),
    }


def _alone(result: ServingResult) -> str:
    """The lowest latencies that targets can ask for: those of requests that run alone."""
    slo, columns = result.setting.serving.slo, result.records.columns()
    ttft, tpot = alone(result.setting, columns)
    share = share_alone(slo, ttft, tpot, columns["output"])
    verdict = "; no load meets the targets" if share < slo.share else ""
    return (
        f"p50 TTFT {seconds(float(np.median(ttft)))}, TPOT {seconds(float(np.median(tpot)))}: "
        f"{percent(share)} of requests within the targets{verdict}"
    )


def _requests(metrics: ServingMetrics) -> str:
    left = metrics.requests - metrics.counted
    words = f"{metrics.requests:,} in {seconds(metrics.makespan_s)}"
    return f"{words}; statistics leave out the first {left:,}" if left else words


def _targets(result: ServingResult) -> list[tuple[str, float | None]]:
    slo = result.setting.serving.slo
    return [("ttft", slo.ttft), ("tpot", slo.tpot), ("e2e", slo.e2e)]


def _kinds(metrics: ServingMetrics) -> str:
    total = sum(metrics.seconds_by_kind.values()) or 1.0
    return ", ".join(
        f"{percent(spent / total, 0)} {kind}" for kind, spent in metrics.seconds_by_kind.items() if spent
    )


def _notes(result: ServingResult) -> Iterator[tuple[str, str]]:
    metrics = result.metrics
    if (grid := result.grid) is not None:
        yield (
            "carbon",
            f"{grid.grams(metrics.joules_per_million):.3g} g CO2 per million output tokens: "
            f"{grid.grams_per_kwh:.3g} g/kWh at {grid.location}, mean of {grids().year}",
        )
    if metrics.sustainable_rate is not None:
        yield (
            "overload",
            f"the queue grows without end: {overload_words(metrics.arrival_rate, metrics.sustainable_rate)}; "
            "latencies grow with the run and have no steady figure",
        )
    if (started := len(result.fleet.members)) != sum(pool.pool.replicas for pool in result.setting.pools):
        yield "replicas", f"{started:,} started over the run by the {result.setting.scaler.name} scaler"
    fair = any(pool.scheduler.name == "fair" for pool in result.setting.pools)
    for level, measured in metrics.by_priority.items():
        ttft, e2e = measured["ttft_s"], measured["e2e_s"]
        yield (
            f"{'tenant' if fair else 'priority'} {level}",
            f"{measured['requests']:,} requests; TTFT {seconds(ttft['p50'])} (p99 {seconds(ttft['p99'])}), "
            f"e2e {seconds(e2e['p50'])} (p99 {seconds(e2e['p99'])})",
        )
    if result.row is not None:
        yield "row power", _row_power(result.row.figures())
    if failures := sum(member.failures for member in result.fleet.members):
        sent, given_up = result.fleet.retries, result.fleet.failed
        yield "failures", f"{failures:,} of replicas; {sent:,} requests sent again, {given_up:,} given up"
    yield from _moved(result)
    if metrics.refused:
        yield "refused", f"{metrics.refused:,} requests exceed the KV blocks of a replica"
    if metrics.counted < 10 * FEW:
        yield (
            "few requests",
            f"p99 rests on the slowest {max(metrics.counted // 100, 1)} of {metrics.counted:,}; "
            "raise workload.requests",
        )
    if result.interrupted:
        yield "interrupted", "figures are of the requests that had ended"


def _moved(result: ServingResult) -> Iterator[tuple[str, str]]:
    """What policies that move state did."""
    movement = moves_figures(result.fleet)
    if (met := movement.get("deadlines_met")) is not None:
        spent = movement["program_s"]
        took = f"; a program takes {seconds(spent['p50'])} (p95 {seconds(spent['p95'])})" if spent else ""
        deadline = seconds(result.setting.serving.program.deadline or 0.0)
        yield "deadlines", f"{percent(met)} of programs within {deadline}{took}"
    if tuned := movement.get("finetuning"):
        share = percent(tuned["share_of_peak"])
        yield "fine-tuning", f"{tuned['tokens_s']:,.0f} tokens/s, {share} of devices that do nothing else"
    if "tier_hit_rates" in movement:
        rates = ", ".join(f"{place} {percent(rate)}" for place, rate in movement["tier_hit_rates"].items())
        yield "read from tiers", f"{rates} of prompt tokens"
    if moves := movement.get("migrations"):
        stopped = moves["stop_mean_s"]
        stop = "" if stopped is None else f", stopped {seconds(stopped)} in the mean"
        yield (
            "migrations",
            f"{moves['copied']:,} with their KV ({moves['bytes'] / 1e9:,.1f} GB), {moves['recomputed']:,} "
            f"computed again, {moves['dropped']:,} given up{stop}",
        )
    if "link_bytes" in movement:
        carried = movement["link_bytes"].items()
        yield "over links", ", ".join(f"{name} {bytes_ / 1e9:,.1f} GB" for name, bytes_ in carried)


def _row_power(row: RowPower) -> str:
    """Power of the row against its budget, brakes and caps."""
    return (
        f"{row.policy}: {row.servers:,} servers where power was provisioned for {row.provisioned:,} "
        f"({row.added:+.0%}); peak {row.peak_w / row.budget_w:.1%}, mean {row.mean_w / row.budget_w:.1%} of "
        f"{row.budget_w / 1e3:,.0f} kW; {row.brakes} brake events; capped {row.capped:.0%} of the time"
    )


def request_rows(result: ServingResult) -> Iterator[Sequence[str]]:
    """Header and rows of the per-request CSV."""
    yield Record._fields
    for record in result.records:
        yield [repr(value) if isinstance(value, float) else str(value) for value in record]
