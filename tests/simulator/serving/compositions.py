"""Random compositions of serving policies, and the laws that each run keeps.

``python -m tests.simulator.serving.compositions --count 2000`` runs more of them than the suite does.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np

from core.errors import InfeasibleError, InputError
from simulator.serving.kv_states import states
from simulator.serving.overlaps import overlaps
from simulator.serving.replica.guards import guarding
from simulator.serving.replica.schedulers import schedulers
from simulator.serving.result import serve
from simulator.serving.routers import routers
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()
REQUESTS = 60
LEFT_OUT = {"one-adapter", "static"}
"""Schedulers that serve one adapter, or pad outputs beyond the KV that the fleet checked: they may starve."""
SPECIAL = {"by-length"}
"""Routers that need parameters."""


def composition(seed):
    """A serving scenario of policies drawn at random."""
    random = np.random.default_rng([seed, 23])

    def one_of(*values):
        return values[random.integers(len(values))]

    def perhaps(share):
        return random.random() < share

    router = {"kind": one_of(*(name for name in sorted(routers) if name not in SPECIAL))}
    if perhaps(0.5):
        how = one_of("live", "recompute", "sooner")
        router["migrate"] = {
            "kind": one_of("llumnix", "drain", "lend"),
            "how": how,
            "interval": one_of(0.03, 0.3),
        }
        if router["migrate"]["kind"] == "llumnix":
            router["migrate"] |= {"threshold": one_of(3.0, 60.0), "headroom": one_of(0, 50)}
    deployment = {
        "engine": one_of("vllm-0.19", "vllm-0.11", "vllm-0.6", "sglang-0.5.9"),
        "router": router,
        "options": {
            "scheduler": one_of(*(name for name in sorted(schedulers) if name not in LEFT_OUT)),
            "preemption": one_of("recompute", "swap", "none"),
            "kv_blocks": one_of(300, 500, 4000),
            "max_context": 4096,
            "max_sequences": one_of(4, 64),
        },
    }
    workload = {
        "kind": "serving",
        "requests": REQUESTS,
        "arrivals": one_of(
            {"kind": "poisson", "rate": one_of(3, 40)},
            {"kind": "burst"},
            {"kind": "closed", "concurrency": 12},
        ),
        "input": {"kind": "lognormal", "median": 200, "sigma": 1.0, "most": 1500},
        "output": {"kind": "uniform", "low": 1, "high": 250},
    }
    _shape(deployment, one_of, perhaps)
    _state(deployment, workload, one_of, perhaps)
    _events(deployment, workload, one_of, perhaps)
    _lend_plain_blocks(deployment, workload)
    _qualities(deployment, one_of)
    return {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "seed": int(seed),
        "workload": workload,
        "deployment": deployment,
    }


def _qualities(deployment, one_of):
    """A table of quality of the pools, where the router reads one."""
    router, pools = deployment["router"], deployment.get("pools", [{"role": "mixed"}])
    if router["kind"] != "by-quality":
        return
    names = [pool["role"] for pool in pools if pool["role"] != "attention"]
    router |= {"quality": {name: [0.9, 0.5] for name in names}, "classes": [2, 1]}
    router |= {"load": one_of(0.0, 0.1), "examples": {names[0]: one_of(1, 100)}}


def _lend_plain_blocks(deployment, workload):
    """Let replicas lend where they hold plain blocks of one pool; else sequences leave drained ones."""
    migrate = deployment["router"].get("migrate", {})
    if migrate.get("kind") != "lend":
        return
    shared = {"prefix", "program", "chunks"} & workload.keys()
    others = {"pools", "data", "pipeline", "scaler", "failures", "speculation"} & deployment.keys()
    if shared or others:
        migrate["kind"] = "drain"


def _shape(deployment, one_of, perhaps):
    """Pools and degrees."""
    shape = one_of("plain", "plain", "pipeline", "data", "pools", "speculation")
    deployment["replicas"] = one_of(2, 4) if "migrate" in deployment["router"] else one_of(1, 2, 4)
    if shape == "pipeline":
        deployment["pipeline"] = 2
        if perhaps(0.3):
            deployment["speculation"] = {"draft": "llama3.2-1b", "tokens": 1, "asynchronous": True}
    elif shape == "data":
        deployment["data"] = 2
    elif shape == "pools":
        deployment["pools"] = [{"role": "prefill"}, {"role": "decode"}]
        deployment["transfer"] = one_of("layer-wise", "whole")
    elif shape == "speculation":
        budget = one_of({}, {"budget": 40, "spread": 0.2}, {"budget": 60, "spread": 0.2, "branches": 3})
        deployment["speculation"] = {"kind": "ngram", "tokens": 3, **budget}


def _state(deployment, workload, one_of, perhaps):
    """Tiers, prefixes, documents, adapters."""
    what = one_of(
        "none", "prefix", "conversation", "agent", "documents", "text2sql", "certainty", "tree", "verified"
    )
    if what == "prefix":
        workload["prefix"] = {"tokens": 256, "groups": 5}
    elif what == "conversation":
        workload["program"] = {"kind": "conversation", "turns": 3, "think": 0.5}
        workload["input"]["most"] = 800
    elif what == "agent":
        workload["program"] = {"kind": "agent", "rounds": 2, "fork": 2, "fail": one_of(0.0, 0.3)}
        workload["input"]["most"] = 600
    elif what == "text2sql":
        workload["program"] = {"kind": "text2sql", "candidates": 2, "deadline": one_of(2.0, 30.0)}
        workload["input"]["most"] = 600
    elif what == "certainty":
        workload["program"] = {"kind": "certainty", "count": 3, "stop": [1.0, 2.0], "deadline": 5.0}
    elif what == "tree":
        price = one_of(0.0, 1.0)
        workload["program"] = {"kind": "tree-search", "width": 6, "steps": 3, "price": price}
        workload["input"]["most"] = 600
    elif what == "verified":
        rounds = one_of({}, {"rounds": 2, "keep": 2})
        workload["program"] = {"kind": "verified", "count": 4, "checks": one_of(0, 2), **rounds}
        workload["input"]["most"] = 600
    elif what == "documents":
        workload["chunks"] = {"documents": 20, "per_prompt": 3, "tokens": 128}
    if what == "documents" or perhaps(0.6):
        places = one_of(("host",), ("nvme",), ("remote",), ("host", "nvme"), ("host", "remote"))
        stated = [{"recompute": share} for share in (0.0, 0.15, 1.0)]
        recompute = one_of(*stated) if what == "documents" else one_of({}, *stated)
        deployment["tiers"] = [
            {"place": place, "gigabytes": one_of(0.05, 5), **recompute} for place in places
        ]
    if perhaps(0.2):
        deployment["adapters"] = {"count": 5, "rank": 8, "popularity": {"zipf": 1.0}}
        if perhaps(0.3):
            deployment["adapters"] |= {"kernel": "blocks", "options": {"shared": 0.99}}


def _events(deployment, workload, one_of, perhaps):
    """Failures, drains, scaling, priorities, starts, overlap."""
    if perhaps(0.3):
        outages = [{"time": one_of(0.5, 2.0), "replica": 0}, {"time": 3.0, "replica": 1}]
        deployment["failures"] = {"at": outages, "restore": one_of(0.5, 5.0), "retries": one_of(0, 3)}
    if perhaps(0.3):
        deployment["drains"] = [{"time": one_of(0.2, 1.5), "replica": 0, "until": 30.0}]
    if perhaps(0.2):
        deployment["scaler"] = kind = one_of("reactive", "by-targets")
        own = {"target": 6} if kind == "reactive" else {}
        deployment["scaler_options"] = {"interval": 0.5, "start": 1.0, "most": 4, **own}
        workload["slo"] = {"ttft": one_of(0.02, 1.0)}
    if perhaps(0.4):
        workload["priorities"] = [1, 3]
    if perhaps(0.3):
        deployment["start"] = {"from": one_of("peer", "host", "sleep-1"), "engine": 1.0}
    if deployment.get("scaler") == "reactive" and perhaps(0.5):
        deployment["scaler_options"]["least"] = 0
    if perhaps(0.2) and not {"speculation", "pipeline", "data"} & deployment.keys():
        deployment["finetuning"] = {"tpot": one_of(0.01, 0.05)}
    if perhaps(0.3):
        deployment["overlap"] = {"kind": one_of(*overlaps)}
    if perhaps(0.1):
        deployment["stream"] = {"from": "host", "cpu_bytes_s": one_of(0.0, 1e11)}
    if perhaps(0.3):
        _kv_state(deployment, one_of)


def _kv_state(deployment, one_of):
    """KV kept in part or elsewhere, or attention in a pool of its own."""
    kind = one_of(*states)
    if not kind.startswith("attention-"):
        deployment["state"] = {"kind": kind}
        return
    if kind == "attention-ffn":
        ffn = {"role": "decode", "state": {"kind": kind, "options": {"in_flight": one_of(2, 3, 5)}}}
        deployment["pools"] = [{"role": "prefill"}, ffn]
    shared = {"role": "attention", "replicas": deployment["replicas"], "data": 1, "pipeline": 1}
    deployment["pools"] = [*deployment.get("pools", [{"role": "mixed"}]), shared]


def run(data):
    """The run of a composition under the laws of conservation; None where it is refused."""
    try:
        setting = make_serving(data, "composition", Path(), TABLES)
    except (InputError, InfeasibleError):
        return None
    try:
        with guarding():
            return serve(setting)
    except InfeasibleError:
        return None


def check(result):
    """Assert what every run keeps beyond the guarded laws."""
    fleet, columns = result.fleet, result.records.columns()
    serials = columns["serial"]
    assert len(set(serials.tolist())) == len(serials)
    # A program may end before the run's last request is sent.
    assert len(serials) + fleet.refused + fleet.failed <= REQUESTS
    if result.setting.serving.program.kind == "single":
        assert len(serials) + fleet.refused + fleet.failed == REQUESTS
    times = [columns[name] for name in ("arrival_s", "scheduled_s", "first_s", "last_s")]
    for before, after in pairwise(times):
        assert (after >= before).all()
    for member in fleet.members:
        for batcher in member.replica.batchers:
            assert batcher.running == 0
            assert not batcher.waiting
            assert batcher.kv.free == batcher.kv.total
    links = fleet.lanes.links
    links.run(1e9)
    assert not links.flows
    assert all(lane.users == 0 and lane.bytes >= 0.0 for lane in fleet.lanes)
    if fleet.moves is not None:
        moves = fleet.moves.counts
        assert len(moves.stops_s) == moves.copied + moves.recomputed
        assert all(stop >= 0.0 for stop in moves.stops_s)


def same_bytes(first, second):
    """Whether two runs gave the same records."""
    ours, theirs = first.records.columns(), second.records.columns()
    return all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


def main():
    """Run compositions and print how many ran, were refused, and broke a law."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="compositions")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    given = parser.parse_args()
    found, broken = Counter(), []
    for seed in range(given.first, given.first + given.count):
        try:
            result = run(composition(seed))
            if result is None:
                found["refused"] += 1
                continue
            check(result)
            assert seed % 10 or same_bytes(result, run(composition(seed)))
            found["kept all laws"] += 1
        except Exception as error:  # every fault of a composition is reported with its seed
            found["broke a law"] += 1
            broken.append(f"seed {seed}: {type(error).__name__}: {error}")
    sys.stdout.write("\n".join([str(dict(found)), *broken[:20], ""]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
