"""The cheapest mix of GPU types: tables for people, JSON."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.table import Table

from meshwright.reports.tables import facts, table
from meshwright.reports.units import percent, seconds
from planner.serving.mix.allocation import TOGETHER, Allocation
from planner.serving.mix.run import MixRun, scenario_of_mix
from planner.serving.mix.search import Mix
from planner.serving.plan import SECONDS_AN_HOUR
from planner.serving.score import ROLES


def describe_mix(found: Mix, run: MixRun | None = None) -> dict[str, Any]:
    """A mix with documented keys, and its run on the event engine."""
    question, best = found.question, found.best
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
            "share_of_requests": float(share @ _weights(found)),
        }
        for option, count, share in found.pools
    ]
    return {
        "question": {
            "model": question.model.name,
            "engine": question.engine,
            "rate": found.rate,
            "ttft": slo.ttft,
            "tpot": slo.tpot,
            "e2e": slo.e2e,
            "slo_share": slo.share,
            "types": [
                {"device": one.name, "available": one.available, "usd_per_hour": one.usd_per_hour}
                for one in found.offers
            ],
        },
        "usd_per_hour": best.usd_per_hour,
        "bound_usd_per_hour": best.bound,
        "gap": best.gap,
        "usd_per_million_tokens": best.usd_per_hour / SECONDS_AN_HOUR / found.output_tokens_s * 1e6,
        "watts": found.watts,
        "rented": rented,
        "buckets": [
            {
                "prompt_tokens": bucket.prompt,
                "output_tokens": bucket.output,
                "rate": bucket.rate,
                "devices": _sent(found, index),
            }
            for index, bucket in enumerate(found.buckets)
        ],
        "one_type": {
            name: {"usd_per_hour": one.usd_per_hour} if isinstance(one, Allocation) else {"problem": one}
            for name, one in found.alone.items()
        },
        "saving": found.saving,
        "scenario": scenario_of_mix(found),
        **({} if run is None else {"engine": {**asdict(run), "difference": run.difference}}),
    }


def _weights(found: Mix) -> np.ndarray:
    return np.array([bucket.rate for bucket in found.buckets]) / found.rate


def _sent(found: Mix, bucket: int) -> dict[str, float]:
    """Share of a bucket by device, or by devices of prompts and of outputs."""
    shares: dict[str, float] = defaultdict(float)
    ways = found.costs.ways
    for option, decodes, receiver, share in zip(
        ways.option, ways.decodes, ways.receiver, found.best.share[:, bucket], strict=True
    ):
        if share and not decodes:
            name = found.options[option].offer.name
            shares[name if receiver == TOGETHER else f"{name} > {found.offers[receiver].name}"] += float(
                share
            )
    return dict(shares)


def mix_tables(found: Mix, run: MixRun | None = None) -> list[Table | str]:
    """A mix for people: replicas, its run, requests by length, single types, and assumptions."""
    ran = [] if run is None else [_ran(run)]
    return [_rented(found), _verdict(found), *ran, _routing(found), _alone(found), _basis(found)]


def _ran(run: MixRun) -> str:
    return (
        f"On the event engine, {percent(run.met)} of the requests meet the targets at {run.asked:g} "
        f"requests/s. The program's loads leave room for {run.promised:.3g} requests/s; the engine serves "
        f"{run.rate:.3g} ± {run.half_width:.2g} within the targets ({run.difference:+.0%})."
    )


def _rented(found: Mix) -> Table:
    rows = [
        [
            f"{count} x {option.describe()}",
            f"{option.budget:,} tok, {option.sequences:,} seq",
            str(count * option.shape.devices),
            f"{count * option.usd_per_hour:.2f}",
            percent(float(share @ _weights(found)), 0),
        ]
        for option, count, share in found.pools
    ]
    slo = found.question.workload.slo
    targets = ", ".join(
        f"{name} {seconds(limit)}"
        for name, limit in (("TTFT", slo.ttft), ("TPOT", slo.tpot), ("e2e", slo.e2e))
        if limit is not None
    )
    title = (
        f"{found.question.model.name}, {found.rate:g} requests/s, {percent(slo.share, 0)} within {targets}"
    )
    return table(("replicas", "limits", "GPUs", "$/h", "requests"), rows, title, left=2)


def _verdict(found: Mix) -> str:
    best = found.best
    proof = "no mix costs less" if best.proved else f"no mix costs less than {best.bound:.2f} $ an hour"
    cost = f"{best.usd_per_hour:.2f} $ an hour, {found.watts:,.0f} W; {proof}"
    if found.saving is None:
        return f"{cost}. No type carries this load alone."
    if found.saving < 1e-9:
        return f"{cost}. One type alone is the cheapest."
    return f"{cost}. The cheapest type alone costs {percent(found.saving / (1 - found.saving))} more."


def _routing(found: Mix) -> Table:
    names = list(dict.fromkeys(name for index in _indices(found) for name in _sent(found, index)))
    rows = []
    for index in sorted(_indices(found), key=lambda index: -found.buckets[index].rate)[:12]:
        bucket, sent = found.buckets[index], _sent(found, index)
        lengths = f"{bucket.prompt:,.0f} in, {bucket.output:,.0f} out"
        shares = [percent(sent[name], 0) if name in sent else "" for name in names]
        rows.append([lengths, percent(bucket.rate / found.rate), *shares])
    return table(("mean tokens", "requests", *names), rows, "Where requests go, most frequent first", left=1)


def _indices(found: Mix) -> range:
    return range(len(found.buckets))


def _alone(found: Mix) -> Table:
    rows = []
    for name, one in found.alone.items():
        if isinstance(one, Allocation):
            counts = [
                f"{count} x {option.describe().replace(f'{option.offer.name} ', '')}"
                for option, count in zip(found.options, one.replicas, strict=True)
                if count
            ]
            rows.append([name, " + ".join(counts), f"{one.usd_per_hour:.2f}"])
        else:
            rows.append([name, one, ""])
    return table(("one type alone", "replicas", "$/h"), rows, left=2)


def _basis(found: Mix) -> Table:
    prices = ", ".join(f"{offer.name} {offer.usd_per_hour:g}" for offer in found.offers)
    return facts(
        {
            "engine": found.question.engine,
            "model": "steady state of each bucket alone; loads of a replica's buckets add up (Mélange)",
            "price": f"$ an hour and device: {prices}",
            "power": "of busy devices, hosts not counted",
        },
        "What this rests on",
    )
