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

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import yaml

from benchmarks.serving import timed
from core.errors import named
from evidence.command import command
from meshwright.questions.keys import set_key
from simulator.serving.fleet.replayed import COMPILED, LOOPS, run_as
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

RUNS = 3
"""Of each scenario; the fastest counts."""


@dataclass(frozen=True)
class Compared:
    """A policy, and the keys of its scenario."""

    policy: dict[str, Any]
    both: dict[str, Any] = field(default_factory=dict)
    """Keys of the scenario without it, too."""


_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
CORE: dict[str, Any] = _DATA["core"]
POLICIES = {name: Compared(**keys) for name, keys in _DATA["policies"].items()}
GROWN = 4.0
"""Requests a second of each replica where routers are measured over fleets of many sizes."""
ROUTERS: dict[str, dict[str, Any]] = _DATA["routers"]


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


@command
def main(
    policies: Annotated[Sequence[str], f"{', '.join(POLICIES)}; default: all"] = (),
    *,
    runs: int = RUNS,
    form: Annotated[str, (LOOPS, COMPILED)] = LOOPS,
    replicas: Annotated[Sequence[int], "routers over fleets of these sizes"] = (),
) -> None:
    """Print the table."""
    kind, members = ("router", ROUTERS) if replicas else ("policy", POLICIES)
    for name in policies:
        named(kind, name, members)
    with run_as(form):
        if replicas:
            growth(policies or list(ROUTERS), replicas, runs)
        else:
            shares(policies or list(POLICIES), runs)
