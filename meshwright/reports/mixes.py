"""The cheapest mix of GPU types: tables for people, JSON."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Table

from meshwright.measured.served_errors import ServedError
from meshwright.reports.serving_evidence import described, error_words, shape_errors
from meshwright.reports.tables import facts, table
from meshwright.reports.units import per_second, percent, seconds, with_half_width
from planner.serving.mix.allocation import TOGETHER, Allocation
from planner.serving.mix.offers import Option
from planner.serving.mix.run import MixRun, scenario_of_mix
from planner.serving.mix.search import Mix
from planner.serving.plan import SECONDS_AN_HOUR
from planner.serving.replica_cases import ROLES


def describe_mix(mix: Mix, run: MixRun | None = None) -> dict[str, Any]:
    """A mix with documented keys, and its run on the event engine."""
    question, best = mix.question, mix.best
    slo = question.workload.slo
    rented = [
        {
            "role": ROLES[option.role],
            "device": option.offer.name,
            "cluster": option.offer.cluster.name,
            "tensor": option.shape.pool.tensor,
            "data": option.shape.pool.data,
            "pipeline": option.shape.pool.pipeline,
            "expert": option.shape.pool.expert,
            "weights": option.shape.pool.weights,
            "replicas": count,
            "gpus": count * option.shape.devices,
            "token_budget": option.budget,
            "max_sequences": option.sequences,
            "usd_per_hour": float(count * option.usd_per_hour),
            "expected_errors": described(option_errors(mix, option)),
            "share_of_requests": float(share @ _weights(mix)),
        }
        for option, count, share in mix.pools
    ]
    return {
        "question": {
            "model": question.model.name,
            "engine": question.engine,
            "rate": mix.rate,
            "ttft": slo.ttft,
            "tpot": slo.tpot,
            "e2e": slo.e2e,
            "slo_share": slo.share,
            "types": [
                {"device": offer.name, "available": offer.available, "usd_per_hour": offer.usd_per_hour}
                for offer in mix.offers
            ],
        },
        "usd_per_hour": best.usd_per_hour,
        "bound_usd_per_hour": best.bound,
        "gap": best.gap,
        "usd_per_million_tokens": best.usd_per_hour / SECONDS_AN_HOUR / mix.output_tokens_s * 1e6,
        "watts": mix.watts,
        "rented": rented,
        "buckets": [
            {
                "prompt_tokens": bucket.prompt,
                "output_tokens": bucket.output,
                "rate": bucket.rate,
                "devices": _sent(mix, index),
            }
            for index, bucket in enumerate(mix.buckets)
        ],
        "one_type": {
            name: {"usd_per_hour": offer.usd_per_hour}
            if isinstance(offer, Allocation)
            else {"problem": offer}
            for name, offer in mix.alone.items()
        },
        "saving": mix.saving,
        "scenario": scenario_of_mix(mix),
        **({} if run is None else {"engine": {**asdict(run), "difference": run.difference}}),
    }


def _weights(mix: Mix) -> np.ndarray:
    return np.array([bucket.rate for bucket in mix.buckets]) / mix.rate


def _sent(mix: Mix, bucket: int) -> dict[str, float]:
    """Share of a bucket by device, or by devices of prompts and of outputs."""
    shares: dict[str, float] = defaultdict(float)
    ways = mix.costs.ways
    for option, decodes, receiver, share in zip(
        ways.option, ways.decodes, ways.receiver, mix.best.share[:, bucket], strict=True
    ):
        if share and not decodes:
            name = mix.options[option].offer.name
            shares[name if receiver == TOGETHER else f"{name} > {mix.offers[receiver].name}"] += float(share)
    return dict(shares)


def mix_tables(mix: Mix, run: MixRun | None = None) -> list[Table | str]:
    """A mix for people: replicas, its run, requests by length, single types, and assumptions."""
    ran = [] if run is None else [_ran(run)]
    return [_verdict(mix), _rented(mix), *ran, _routing(mix), _alone(mix), _basis(mix)]


def _ran(run: MixRun) -> str:
    return (
        f"On the event engine, {percent(run.met)} of the requests meet the targets at {run.demand:g} "
        f"requests/s. The program's loads leave room for {per_second(run.promised)} requests/s; the engine "
        f"serves {with_half_width(run.rate, run.half_width)} within the targets ({run.difference:+.0%})."
    )


def _rented(mix: Mix) -> Table:
    rows = [
        [
            f"{count} x {option.describe()}",
            f"{option.budget:,} tok, {option.sequences:,} seq",
            str(count * option.shape.devices),
            f"{count * option.usd_per_hour:.2f}",
            percent(float(share @ _weights(mix)), 0),
        ]
        for option, count, share in mix.pools
    ]
    slo = mix.question.workload.slo
    targets = ", ".join(
        f"{name} {seconds(limit)}"
        for name, limit in (("TTFT", slo.ttft), ("TPOT", slo.tpot), ("e2e", slo.e2e))
        if limit is not None
    )
    title = f"{mix.question.model.name}, {mix.rate:g} requests/s, {percent(slo.share, 0)} within {targets}"
    return table(("replicas", "limits", "GPUs", "$/h", "requests"), rows, title, left=2)


def _verdict(mix: Mix) -> str:
    best = mix.best
    proof = "no mix costs less" if best.proved else f"no mix costs less than {best.bound:.2f} $ an hour"
    rented = " + ".join(f"{count} x {option.describe()}" for option, count, _ in mix.pools)
    cost = f"{rented}: {best.usd_per_hour:.2f} $ an hour, {mix.watts:,.0f} W; {proof}"
    if mix.saving is None:
        return f"{cost}. No type carries this load alone."
    if mix.saving < 1e-9:
        return f"{cost}. One type alone is the cheapest."
    return f"{cost}. The cheapest type alone costs {percent(mix.saving / (1 - mix.saving))} more."


def _routing(mix: Mix) -> Table:
    names = list(dict.fromkeys(name for index in _indices(mix) for name in _sent(mix, index)))
    rows = []
    for index in sorted(_indices(mix), key=lambda index: -mix.buckets[index].rate)[:12]:
        bucket, sent = mix.buckets[index], _sent(mix, index)
        lengths = f"{bucket.prompt:,.0f} in, {bucket.output:,.0f} out"
        shares = [percent(sent[name], 0) if name in sent else "" for name in names]
        rows.append([lengths, percent(bucket.rate / mix.rate), *shares])
    return table(("mean tokens", "requests", *names), rows, "Where requests go, most frequent first", left=1)


def _indices(mix: Mix) -> range:
    return range(len(mix.buckets))


def _alone(mix: Mix) -> Table:
    rows = []
    for name, single in mix.alone.items():
        if isinstance(single, Allocation):
            counts = [
                f"{count} x {option.describe().replace(f'{option.offer.name} ', '')}"
                for option, count in zip(mix.options, single.replicas, strict=True)
                if count
            ]
            rows.append([name, " + ".join(counts), f"{single.usd_per_hour:.2f}"])
        else:
            rows.append([name, single, ""])
    return table(("one type alone", "replicas", "$/h"), rows, left=2)


def option_errors(mix: Mix, option: Option) -> dict[str, ServedError]:
    """Errors to expect of a replica's latencies, by metric; none where no fit has servers of its kind."""
    return shape_errors(mix.question, option.shape) if ROLES[option.role] == "mixed" else {}


def _errors(mix: Mix) -> dict[str, str]:
    """Errors to expect of what is rented, for people."""
    by_name: dict[str, str] = {}
    for option, _, _ in mix.pools:
        for name, words in error_words(option_errors(mix, option)).items():
            by_name.setdefault(f"{name}, {option.offer.name}", words)
    return by_name


def _basis(mix: Mix) -> Table:
    prices = ", ".join(f"{offer.name} {offer.usd_per_hour:g}" for offer in mix.offers)
    return facts(
        {
            "engine": mix.question.engine,
            "model": "steady state of each bucket alone; loads of a replica's buckets add up (Mélange)",
            "price": f"$ an hour and device: {prices}",
            "power": "of busy devices, hosts not counted",
            **_errors(mix),
        },
        "What this rests on",
    )
