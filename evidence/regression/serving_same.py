"""Whether a change of the event engine keeps its answers, to the bit.

``python -m evidence.regression.serving_same --save FILE.npz`` before the change, ``--against FILE.npz`` after
it: runs the serving questions of the golden file, all schedulers with few and with many KV blocks, deeper
pipelines, and all routers over fleets of many kinds, and compares every column of every record, the sums over
steps and the histogram of token gaps.
Prints the differences; exit status 1 where an answer moved. ``--as lists`` and ``--as compiled`` run what
kernels know as kernels, however short the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml

from core.errors import InputError
from evidence.command import command
from simulator.kinds import kind_of
from simulator.serving.fleet.replayed import AUTOMATIC, COMPILED, LISTS, run_as
from simulator.serving.metrics import merged
from simulator.serving.replica.schedulers import schedulers
from simulator.serving.result import serve
from simulator.serving.routers import routers
from simulator.serving.scenario import make_serving

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "questions.yaml"
CHAT = {
    "kind": "serving",
    "requests": 150,
    "arrivals": {"kind": "poisson", "rate": 6.0},
    "input": {"kind": "lognormal", "median": 850, "sigma": 0.9, "most": 3000},
    "output": {"kind": "lognormal", "median": 150, "sigma": 0.8, "most": 1000},
}
LARGE = {"model": "llama2-70b", "cluster": "dgx-a100-80gb", "workload": CHAT}
SMALL = {"model": "llama3.1-8b", "cluster": "dgx-h100", "workload": CHAT}
FEW, MANY = 700, 0
"""KV blocks; 0 as the memory rule says."""


def questions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Scenarios by name."""
    golden = yaml.safe_load(GOLDEN.read_text(encoding="utf-8"))
    for name, data in golden.items():
        if isinstance(data, Mapping) and "ask" not in data and kind_of(data).above == "deployment":
            yield name, dict(data)
    for name in schedulers:
        for blocks in (FEW, MANY):
            options = {"scheduler": name, "kv_blocks": blocks, "token_budget": 512, "max_context": 8192}
            for title, data, pool in (("", SMALL, {}), (" in stages", LARGE, {"tensor": 2, "pipeline": 2})):
                yield (
                    f"{name}{title}, {blocks or 'all'} blocks",
                    {**data, "deployment": {**pool, "options": options}},
                )
    for stages in (2, 3, 4):
        rate = {"kind": "poisson", "rate": 0.4 * stages}
        deployment = {
            "engine": "vllm-0.11",
            "tensor": 2,
            "pipeline": stages,
            "options": {"token_budget": 512},
        }
        yield f"{stages} stages", {**LARGE, "workload": {**CHAT, "arrivals": rate}, "deployment": deployment}


ROUTER_OPTIONS: dict[str, dict[str, Any]] = {
    "by-quality": {"quality": {"mixed": [0.8, 0.6]}, "classes": [2.0, 1.0], "load": 0.02},
    "by-length": {
        "groups": [2, 3],
        "buckets": [
            {"prompt": 500, "output": 100, "shares": [0.7, 0.3]},
            {"prompt": 3000, "output": 300, "shares": [0.1, 0.9]},
        ],
    },
}
"""Parameters of routers that need some."""
FEW_BLOCKS = {"kv_blocks": FEW, "max_context": 8192}
FLEETS: dict[str, dict[str, Any]] = {
    "of five": {},
    "with few blocks": {"deployment": {"options": FEW_BLOCKS}},
    "of ranks": {"model": "qwen3-30b-a3b", "deployment": {"data": 2, "expert": 2}},
    "in stages": {**LARGE, "deployment": {"tensor": 2, "pipeline": 2}, "workload": {"requests": 80}},
    "with closed clients": {"workload": {"arrivals": {"kind": "closed", "concurrency": 40}}},
    "with failures": {"deployment": {"failures": {"at": [{"time": 8, "replica": 1}], "restore": 4}}},
    "that scales": {
        "deployment": {"scaler": "reactive", "scaler_options": {"interval": 3, "most": 8, "target": 6}}
    },
    "with tiers": {
        "deployment": {
            "options": FEW_BLOCKS,
            "tiers": [{"place": "host", "gigabytes": 4}, {"place": "remote", "gigabytes": 4}],
        }
    },
    "of two pools": {
        "deployment": {
            "pools": [{"role": "prefill", "replicas": 2}, {"role": "decode", "replicas": 3}],
        }
    },
    "with adapters": {"deployment": {"adapters": {"count": 60, "rank": 16, "popularity": {"zipf": 1.2}}}},
}
"""Keys of fleets of five replicas under a workload with shared prefixes."""


def routed() -> Iterator[tuple[str, dict[str, Any]]]:
    """Scenarios of routers by name."""
    shared = {"prefix": {"tokens": 512, "groups": 40}, "priorities": [1, 3], "requests": 120}
    for router in routers:
        for fleet, keys in FLEETS.items():
            if router == "by-quality" and fleet == "of two pools":
                continue  # it states the quality of every pool
            workload = {**CHAT, **shared, "arrivals": {"kind": "poisson", "rate": 24.0}}
            deployment = {"replicas": 5, "router": router, "router_options": ROUTER_OPTIONS.get(router, {})}
            yield (
                f"{router}, {fleet}",
                {
                    **SMALL,
                    **keys,
                    "workload": {**workload, **keys.get("workload", {})},
                    "deployment": {**deployment, **keys.get("deployment", {})},
                },
            )


def answers() -> Iterator[tuple[str, np.ndarray]]:
    """Arrays of every run, by the run's name and the column's."""
    for name, data in chain(questions(), routed()):
        run = serve(make_serving(data, name, Path()))
        for column, values in run.records.columns().items():
            yield f"{name}: {column}", values
        totals = [member.meter.totals for member in run.fleet.members]
        yield f"{name}: series", np.concatenate([replica.series.bins for replica in totals])
        yield f"{name}: joules", np.array([replica.joules for replica in totals])
        yield (
            f"{name}: gaps",
            np.array(sorted(merged([member.meter for member in run.fleet.members]).items())),
        )


def compared(file: Path) -> int:
    """Compare the answers with saved ones; the exit status."""
    changed = compared = 0
    with np.load(file) as before:
        for name, arrays in answers():
            if name not in before:
                continue  # a policy that did not exist
            compared += 1
            expected = before[name]
            if expected.shape != arrays.shape:
                print(f"{name}: shape {expected.shape} is now {arrays.shape}")
            elif not np.array_equal(expected, arrays, equal_nan=True):
                size = np.maximum(np.abs(expected), 1e-300)
                off = np.abs(arrays - expected) / size
                print(
                    f"{name}: {(arrays != expected).sum()} of {arrays.size} differ, by up to "
                    f"{np.nanmax(off):.1e}"
                )
            else:
                continue
            changed += 1
    print(f"{compared} arrays, {changed} moved")
    return 1 if changed else 0


@command
def main(
    *,
    save: Path | None = None,
    against: Path | None = None,
    as_: Annotated[str, (AUTOMATIC, LISTS, COMPILED)] = AUTOMATIC,
) -> int:
    """Save the answers, or compare them with saved ones, in a form."""
    with run_as(as_):
        if save is not None:
            saved: Any = dict(answers())
            np.savez_compressed(save, **saved)
            return 0
        if against is None:
            raise InputError("give --save FILE.npz or --against FILE.npz")
        return compared(against)
