"""Speed of the serving simulator: ``python -m benchmarks.serving [TRACE.csv.gz]``.

Prints, for one core: requests a second on a trace of 2,048 requests (Llama-2-70B on four A100, TP2 x PP2,
chunks of 512; KV blocks, records and metrics kept), the start before the first request, the time and
memory of a million generated requests over 64 replicas, and steady-state evaluations a second. Without a
trace, one with the same lengths in distribution is drawn. ``--small`` leaves the million out. Runs are
those of the replicas' own loops and, where numba is installed, of compiled kernels too.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evidence.command import command
from simulator.serving.fleet.replayed import COMPILED, LOOPS, run_as
from simulator.serving.replay.columns import COMPILER
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.steady import Limits, Load, steady_state

CHAT = {
    "arrivals": {"kind": "poisson", "rate": 1.0},
    "input": {"kind": "lognormal", "median": 850, "sigma": 0.9, "most": 4000},
    "output": {"kind": "lognormal", "median": 150, "sigma": 0.8, "most": 1000},
}
REPEATS = 5
FORMS = {LOOPS: "", COMPILED: ", compiled"}
FIRST_CALL = 300
"""Requests of a run before those that are timed."""
CASES = 20_000
"""Steady states evaluated together."""
REFERENCE_LOOP_S = 0.20
"""Of the machine on which the target of 30,000 requests a second was set (a 2.6 GHz EPYC core)."""


def pipelined(trace: str | None) -> dict[str, Any]:
    """Llama-2-70B on TP2 x PP2 A100."""
    load = {"trace": {"format": "plain", "path": trace}} if trace else CHAT
    return {
        "model": "llama2-70b",
        "cluster": "dgx-a100-80gb",
        "workload": {"kind": "serving", "requests": 2048, **load},
        "deployment": {
            "engine": "vllm-0.11",
            "tensor": 2,
            "pipeline": 2,
            "options": {"token_budget": 512, "max_sequences": 128, "max_context": 8192},
        },
    }


def replicated(requests: int) -> dict[str, Any]:
    """A million chats over 64 replicas."""
    return {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            **CHAT,
            "arrivals": {"kind": "poisson", "rate": 256.0},
        },
        "deployment": {"engine": "vllm-0.19", "replicas": 64, "options": {"max_context": 8192}},
    }


def timed(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, CPU seconds and the result of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def loop_seconds() -> float:
    """Least CPU seconds of ten million additions: the speed of Python on this undisturbed machine."""

    def loop() -> int:
        total = 0
        for number in range(10_000_000):
            total += number
        return total

    return min(timed(loop)[1] for _ in range(REPEATS))


def measure(data: dict[str, Any], repeats: int) -> dict[str, float]:
    """Start and best run of a scenario."""
    start, start_cpu, setting = timed(lambda: make_serving(data, "benchmark", Path()))
    runs = [timed(lambda: serve(setting))[:2] for _ in range(repeats)]
    requests = data["workload"]["requests"]
    pace = loop_seconds() / REFERENCE_LOOP_S
    wall, cpu = min(run[0] for run in runs), min(run[1] for run in runs)
    return {
        "start_s": start,
        "start_cpu_s": start_cpu,
        "run_s": wall,
        "run_cpu_s": cpu,
        "requests_per_s": requests / wall,
        "requests_per_cpu_s": requests / cpu,
        "requests_per_reference_s": requests / cpu * pace,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def evaluations() -> float:
    """Steady states a CPU second: closed loops of many lengths and concurrencies, one table."""
    data = replicated(1)
    setting = make_serving(data, "benchmark", Path())
    pool = setting.pools[0]
    random = np.random.default_rng(0)
    load = Load(
        prompt=random.integers(100, 4000, CASES),
        output=random.integers(10, 1000, CASES),
        concurrency=random.integers(1, 200, CASES),
    )
    limits = Limits(
        budget=pool.options.token_budget,
        sequences=pool.options.max_sequences,
        kv_tokens=pool.costs.kv_blocks * pool.options.block_tokens,
    )
    table: Any = pool.costs.steps
    return CASES / min(timed(lambda: steady_state(table, load, limits))[1] for _ in range(REPEATS))


@command
def main(trace: Path | None = None, *, small: bool = False) -> None:
    """Print the figures as JSON."""
    figures: dict[str, Any] = {"loop_s": loop_seconds(), "reference_loop_s": REFERENCE_LOOP_S}
    replay = pipelined(None if trace is None else str(trace))
    for form, words in FORMS.items():
        if form == COMPILED and not COMPILER.usable():
            continue
        with run_as(form):
            serve(make_serving(replicated(FIRST_CALL), "benchmark", Path()))  # reads or compiles kernels
            figures[f"trace of 2,048, TP2 x PP2{words}"] = measure(replay, REPEATS)
            if not small:
                figures[f"1,000,000 over 64 replicas{words}"] = measure(replicated(1_000_000), 1)
    figures["steady state"] = {"evaluations_per_cpu_s": evaluations()}
    print(json.dumps(figures, indent=2))
