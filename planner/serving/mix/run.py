"""A mix on the event engine: the rate that the integer program promised, and the rate that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.serving.mix.search import Mix
from planner.serving.refine import SEEDS, STUDENT, bisect
from planner.serving.replica_cases import DECODE, ROLES
from simulator.models import models
from simulator.scenario_file import cluster_reference, reference
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.arrivals.poisson import Poisson

REQUESTS = 2000
"""Minimum requests of a run."""


@dataclass(frozen=True)
class MixRun:
    """A mix on the event engine.

    Attributes:
        demand: rate of the workload, requests a second.
        promised: the largest rate whose loads the program's routing fits into the rented replicas.
        met: share of the requests within the targets at the rate asked for.
        rate, half_width: largest rate within the targets, and its 95 % confidence interval.
    """

    demand: float
    promised: float
    met: float
    rate: float
    half_width: float

    @property
    def difference(self) -> float:
        """Rate of the event engine over the promised one, less one."""
        return self.rate / self.promised - 1.0


def scenario_of_mix(mix: Mix) -> dict[str, Any]:
    """The mapping of a serving scenario with one pool for each kind of rented replica."""
    question = mix.question
    rented = sorted(mix.pools, key=lambda pool: pool[0].role == DECODE)
    pools = []
    for option, count, _ in rented:
        stated = option.shape.pool.model_dump(mode="json", exclude_defaults=True)
        stated.pop("engine", None)
        limits = {"token_budget": option.budget, "max_sequences": option.sequences}
        pools.append(
            {
                **stated,
                "name": option.describe(),
                "role": ROLES[option.role],
                "cluster": cluster_reference(option.offer.cluster),
                "replicas": count,
                "options": limits,
            }
        )
    entry = [pool for pool in rented if pool[0].role != DECODE]
    decoding = rented[len(entry) :]
    options: dict[str, Any] = {"groups": [count for _, count, _ in entry]}
    options["buckets"] = [
        {
            "prompt": max(int(bucket.prompt), 1),
            "output": max(int(bucket.output), 1),
            "shares": [float(share[at]) for _, _, share in entry],
            **({"decode_shares": [float(share[at]) for _, _, share in decoding]} if decoding else {}),
        }
        for at, bucket in enumerate(mix.buckets)
    ]
    if decoding:
        options["decode_groups"] = [count for _, count, _ in decoding]
    workload = question.workload.model_dump(mode="json", exclude_none=True)
    return {
        "title": f"{question.model.name} on a mix of {', '.join(member['name'] for member in pools)}",
        "model": reference(models, question.model),
        "cluster": pools[0]["cluster"],
        "workload": workload,
        "deployment": {
            "engine": question.engine,
            "router": "by-length",
            "router_options": options,
            "pools": pools,
        },
        "seed": question.seed,
    }


def _promised(mix: Mix) -> float:
    """The largest rate of the program, with its shares: where its fullest replicas are full."""
    share = mix.best.share
    used = np.where(share > 0, share * np.where(share > 0, mix.costs.load, 0.0), 0.0).sum(axis=1)
    loads = np.bincount(mix.costs.ways.option, used, len(mix.options))
    rented = mix.best.replicas > 0
    return float(mix.rate / np.max(loads[rented] / mix.best.replicas[rented]))


def run_mix(mix: Mix, progress: Callable[[float], None] | None = None) -> MixRun:
    """Serve the workload on the rented replicas.

    Args:
        found: the mix.
        progress: called with the finished share.

    Raises:
        InputError: more replicas than a cluster has devices.
    """
    scenario = make_serving(scenario_of_mix(mix), "mix", mix.question.folder)
    serving = scenario.serving.model_copy(
        update={"requests": max(scenario.serving.requests, REQUESTS), "arrivals": Poisson(rate=mix.rate)}
    )
    scenario = replace(scenario, serving=serving)
    met, rates = [], []
    for seed in range(SEEDS):
        seeded = replace(scenario, seed=scenario.seed + seed)
        met.append(serve(seeded).metrics.slo_share or 0.0)
        rates.append(bisect(seeded, _promised(mix), None))
        if progress:
            progress((seed + 1) / SEEDS)
    half = STUDENT * float(np.std(rates, ddof=1)) / SEEDS**0.5
    return MixRun(float(mix.rate), _promised(mix), float(np.mean(met)), float(np.mean(rates)), half)
