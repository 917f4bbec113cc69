"""Speed of serving policies: ``python -m benchmarks.policy_speed [POLICY ...]``.

Runs a workload on which a policy is active, with it and without, both in turn on this machine, and prints
requests a CPU second of both and their ratio; at the end the median and the least ratio. What only the policy
needs (a tier, a draft) is stated with it, what both can have (prefixes, priorities) in both. The simulator
without policies is compared with another version by ``python -m benchmarks.against REF``.

``--replicas 4 64 256 1024`` measures routers over fleets of those sizes instead, each replica with the same
load, and prints how many times slower each is than over the first.

All run in the loops of replicas, which know every policy; ``--form compiled`` runs in compiled kernels what
these know (numba), and says nothing of the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.serving import timed
from core.errors import UnknownNameError
from meshwright.questions.keys import set_key
from simulator.serving.fleet.replayed import COMPILED, LOOPS, run_as
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

RUNS = 3
"""Of each scenario; the fastest counts."""
CORE: dict[str, Any] = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 4000,
        "arrivals": {"kind": "poisson", "rate": 40.0},
        "input": {"kind": "lognormal", "median": 850, "sigma": 0.9, "most": 4000},
        "output": {"kind": "lognormal", "median": 150, "sigma": 0.8, "most": 1000},
    },
    "deployment": {"engine": "vllm-0.19", "replicas": 4, "options": {"max_context": 32768}},
}
"""Chats on four replicas of one H100, at about half of their capacity."""


@dataclass(frozen=True)
class Compared:
    """A policy, and the keys of its scenario."""

    policy: dict[str, Any]
    both: dict[str, Any] = field(default_factory=dict)
    """Keys of the scenario without it, too."""


OPTIONS = "deployment.options"
TENSOR = {"deployment.tensor": 2}
PREFIX = {"workload.prefix": {"tokens": 512, "groups": 2000}}
TURNS = {"workload.program": {"kind": "conversation", "turns": 3, "think": 2.0}}
TIGHT = {f"{OPTIONS}.kv_blocks": 3000}
"""Of 16 tokens: about 45 sequences fit."""
SWAPS = {f"{OPTIONS}.preemption": "swap", "deployment.engine": "vllm-0.6", **TIGHT}
PROGRAM = {"workload.program": {"kind": "text2sql", "candidates": 3, "fail": 0.3, "deadline": 60}}
NGRAM = {"kind": "ngram", "tokens": 3}
DRAFT = {"deployment.speculation": NGRAM}
EXPERTS = {
    "model": "qwen3-30b-a3b",
    "deployment.replicas": 1,
    "deployment.data": 4,
    "deployment.expert": 4,
}
GROWING = {
    "deployment.scaler": "reactive",
    "deployment.scaler_options": {"interval": 5, "most": 6, "target": 30},
}


def _overlap(kind: str, both: dict[str, Any] | None = None) -> Compared:
    return Compared({"deployment.overlap": {"kind": kind}}, both or TENSOR)


def _scheduler(name: str, both: dict[str, Any] | None = None) -> Compared:
    return Compared({f"{OPTIONS}.scheduler": name}, both or {})


def _router(name: str, both: dict[str, Any] | None = None) -> Compared:
    return Compared({"deployment.router": name}, both or {})


def _state(kind: str, **options: float) -> Compared:
    return Compared({"deployment.state": {"kind": kind, "options": options}})


def _program(program: dict[str, Any]) -> Compared:
    """A program beside conversations of as many requests in turn."""
    return Compared({"workload.program": program}, TURNS)


def _tiers(*places: str, **keys: float) -> Compared:
    return Compared(
        {"deployment.tiers": [{"place": place, "gigabytes": 100, **keys} for place in places]}, PREFIX
    )


POLICIES: dict[str, Compared] = {
    "scheduler prefill-first": _scheduler("prefill-first"),
    "scheduler spaced-prefill": _scheduler("spaced-prefill"),
    "scheduler priority": _scheduler("priority", {"workload.priorities": [1, 3]}),
    "scheduler changing-priority": _scheduler("changing-priority", SWAPS),
    "scheduler prefix-grouped": _scheduler("prefix-grouped", PREFIX),
    "scheduler urgency": _scheduler("urgency", PROGRAM),
    "scheduler gang": _scheduler("gang", PROGRAM),
    "router least-loaded": _router("least-loaded"),
    "router freeness": _router("freeness"),
    "router prefix-aware": _router("prefix-aware", PREFIX),
    "router scored": _router("scored", PREFIX),
    "router soonest": _router("soonest"),
    "migration llumnix": Compared(
        {"deployment.migrate": {"kind": "llumnix", "interval": 0.1}}, {"deployment.router": "freeness"}
    ),
    "swaps in groups": Compared(
        {
            f"{OPTIONS}.swap_copies": "groups",
            f"{OPTIONS}.swap_asynchronous": True,
            f"{OPTIONS}.swap_keeps": True,
        },
        {**SWAPS, f"{OPTIONS}.scheduler": "changing-priority"},
    ),
    "tiers": _tiers("host", "nvme"),
    "tiers on shared links": _tiers("host", "nvme", recompute=0.15),
    "documents": Compared(
        {"deployment.tiers": [{"place": "host", "gigabytes": 100, "recompute": 0.15}]},
        {
            "workload.chunks": {"documents": 500, "per_prompt": 4, "tokens": 256},
            "deployment.tiers": [{"place": "host", "gigabytes": 100, "recompute": 1.0}],
        },
    ),
    "adapters": Compared({"deployment.adapters": {"count": 200, "rank": 16, "popularity": {"zipf": 1.5}}}),
    "adapters in KV": Compared(
        {"deployment.adapters": {"count": 200, "rank": 16, "memory": "shared"}},
        {f"{OPTIONS}.prefix_caching": False},
    ),
    "conversations": Compared(TURNS),
    "speculation": Compared(DRAFT),
    "overlap nano-batches": _overlap("nano-batches"),
    "overlap halves": _overlap("halves"),
    "overlap ladder": _overlap("ladder"),
    "streamed weights": Compared({"deployment.stream": {"resident": 0.9}}),
    "fine-tuning": Compared({"deployment.finetuning": {"tpot": 0.03}}),
    "prefill and decode pools": Compared(
        {"deployment.pools": [{"role": "prefill", "replicas": 2}, {"role": "decode", "replicas": 2}]}
    ),
    "reactive scaler": Compared(GROWING),
    "KV in the host": _state("offloaded", gigabytes=400),
    "KV kept in part": _state("evicted"),
    "attention in drives": _state("in-storage"),
    "attention pool": Compared(
        {"deployment.pools": [{"role": "mixed"}, {"role": "attention"}]}, {"workload.arrivals.rate": 20.0}
    ),
    "lending": Compared({"deployment.migrate": {"kind": "lend"}}, {f"{OPTIONS}.prefix_caching": False}),
    "tree search": _program({"kind": "tree-search", "width": 8, "steps": 3}),
    "verified answers": _program({"kind": "verified", "count": 4, "checks": 2}),
    "draft budget": Compared({"deployment.speculation": {**NGRAM, "budget": 256, "spread": 0.2}}, DRAFT),
    "token trees": Compared(
        {"deployment.speculation": {**NGRAM, "budget": 1024, "spread": 0.2, "branches": 4}}, DRAFT
    ),
    "router by-quality": Compared(
        {
            "deployment.router": "by-quality",
            "deployment.router_options": {"quality": {"mixed": [1.0]}},
        }
    ),
    "scaler by targets": Compared(
        {
            "deployment.scaler": "by-targets",
            "deployment.scaler_options": {"interval": 5, "most": 6},
        },
        {"workload.slo": {"ttft": 0.5}},
    ),
    "overlap kraken": _overlap("kraken"),
    "overlap swiftkv": _overlap("swiftkv"),
    "overlap two-batches": _overlap("two-batches", EXPERTS),
    "overlap coherent-experts": _overlap("coherent-experts", EXPERTS),
    "ranks that join": Compared({"deployment.resizes": [{"time": 30, "data": 8}]}, EXPERTS),
    "KV in part in the host": _state("sparse-host"),
    "migration drain": Compared(
        {
            "deployment.migrate": {"kind": "drain", "interval": 0.1},
            "deployment.drains": [{"time": 20, "replica": 0}],
        }
    ),
    "router adapter-aware": _router("adapter-aware", {"deployment.adapters": {"count": 200, "rank": 16}}),
    "router power-of-two": _router("power-of-two"),
    "models that share blocks": Compared(
        {"deployment.adapters": {"count": 8, "rank": 16, "kernel": "blocks"}}
    ),
    "starts from peers": Compared({"deployment.start": {"from": "peer"}}, GROWING),
    "agents": _program({"kind": "agent", "rounds": 2, "fork": 3}),
    "answers until certain": _program({"kind": "certainty", "count": 4, "stop": [0.5, 0.3, 0.2]}),
    "draft model": Compared({"deployment.speculation": {"draft": "llama3.2-1b", "tokens": 3}}),
    "failures": Compared({"deployment.failures": {"at": [{"time": 20, "replica": 0}], "restore": 30}}),
}


GROWN = 4.0
"""Requests a second of each replica where routers are measured over fleets of many sizes."""
ROUTERS: dict[str, dict[str, Any]] = {
    "round-robin": {},
    "least-loaded": {},
    "power-of-two": {},
    "freeness": {},
    "soonest": {},
    "prefix-aware": PREFIX,
    "scored": PREFIX,
    "llm-d": PREFIX,
    "dynamo-kv": PREFIX,
    "adapter-aware": {"deployment.adapters": {"count": 200, "rank": 16}},
    "by-priority": {"workload.priorities": [1, 3]},
    "by-quality": {"deployment.router_options": {"quality": {"mixed": [1.0]}}},
}


def pace(keys: dict[str, Any]) -> float:
    """Requests a CPU second of one run of the core with other keys; the setting is not counted."""
    data = CORE
    for key, value in keys.items():
        data = set_key(data, key, value, Path(), "benchmark")
    setting = make_serving(data, "benchmark", Path())
    seconds, result = timed(lambda: serve(setting))[1:]
    return len(result.records) / seconds


def compared(pairing: Compared, runs: int) -> tuple[float, float]:
    """Best requests a CPU second without and with a policy, both in turn."""
    pairs = [(pace(pairing.both), pace({**pairing.both, **pairing.policy})) for _ in range(runs)]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


def grown(name: str, sizes: Sequence[int], runs: int) -> list[float]:
    """Best requests a CPU second of a router over fleets of some sizes, all in turn."""
    keys = {**ROUTERS[name], "deployment.router": name, "workload.requests": 8000}
    rounds = [
        [
            pace({**keys, "deployment.replicas": size, "workload.arrivals.rate": GROWN * size})
            for size in sizes
        ]
        for _ in range(runs)
    ]
    return [max(column) for column in zip(*rounds, strict=True)]


def growth(names: Sequence[str], sizes: Sequence[int], runs: int) -> None:
    """Print the requests a CPU second of routers by the number of replicas."""
    print("| router, requests/CPU s | " + " | ".join(f"{size:,}" for size in sizes) + " | times slower |")
    print("|---" * (len(sizes) + 2) + "|")
    for name in names:
        paces = grown(name, sizes, runs)
        slower = " ".join(f"{paces[0] / pace:.2f}" for pace in paces[1:])
        print(f"| {name} | " + " | ".join(f"{pace:,.0f}" for pace in paces) + f" | {slower} |", flush=True)


def shares(names: Sequence[str], runs: int) -> None:
    """Print the requests a CPU second without and with policies."""
    print("| policy | core, requests/CPU s | with it | share |\n|---|---|---|---|")
    ratios = []
    for name in names:
        core, with_it = compared(POLICIES[name], runs)
        ratios.append(with_it / core)
        print(f"| {name} | {core:,.0f} | {with_it:,.0f} | {ratios[-1]:.2f} |", flush=True)
    print(f"\nmedian {median(ratios):.2f} (reach 0.85), least {min(ratios):.2f} (reach 0.4)")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.policy_speed", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=f"{', '.join(POLICIES)}; default: all")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--form", choices=(LOOPS, COMPILED), default=LOOPS)
    parser.add_argument("--replicas", type=int, nargs="+", help="routers over fleets of these sizes")
    options = parser.parse_args()
    kind, policies = ("router", ROUTERS) if options.replicas else ("policy", POLICIES)
    for name in options.policies:
        if name not in policies:
            parser.error(str(UnknownNameError(kind, name, policies)))
    with run_as(options.form):
        if options.replicas:
            growth(options.policies or list(ROUTERS), options.replicas, options.runs)
        else:
            shares(options.policies or list(POLICIES), options.runs)


if __name__ == "__main__":
    main()
