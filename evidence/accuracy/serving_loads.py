"""Steady states beside the event engine up to capacity, by kind of replica.

    python -m benchmarks.serving_loads [--kind NAME] [--replicas 8] [--seed 35] [--worst 5]

Each replica is drawn at random: model, cluster, engine, degrees, token budget and lengths. Capacity is the
largest rate at which no queue of the event engine grows, by bisection. At shares of it both give mean TTFT
and TPOT. Printed are the distances, and the largest stable rate over the capacity.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from core.errors import MeshwrightError
from evidence.command import command
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.serving.steady.steady import Limits, Load, Steady, steady_state

SHARES = 0.4, 0.6, 0.75, 0.85, 0.93
REQUESTS, SETTLED = 3000, 0.2
"""Requests of a run, at least, and the part of the first and of the last ones that is left out."""
LIFETIMES, MOST_REQUESTS = 10, 20_000
"""Length of a run over a request's time in the system; requests of the longest."""
CLOSE, STEP, FARTHEST = 1.03, 1.2, 8.0
"""Ends of the interval of the largest rate as a ratio, steps to it, and the farthest distance that counts."""
RATES = np.geomspace(1e-2, 1e4, 1400)
DENSE = "llama3.1-8b", "llama2-13b", "qwen3-32b"
EXPERTS = "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"
CLUSTERS = "dgx-h100", "dgx-h200", "dgx-b200"
SPANS = 0.3, 0.7, 0.9, 0.97, 1.4, 2.0, 3.5
"""Prompt tokens over the token budget."""
BUDGETS = 1024, 2048, 8192
"""Token budgets."""


@dataclass(frozen=True)
class Kind:
    """Replicas that are drawn together."""

    engines: Sequence[str]
    models: Sequence[str] = DENSE
    outputs: Sequence[int] = (20, 100, 300)
    degrees: Sequence[dict[str, int]] = field(default_factory=lambda: [{}])


RANKS = [{"data": ranks, "expert": ranks} for ranks in (2, 4, 8)]
STAGES = [{"pipeline": stages} for stages in (2, 4)]
KINDS = {
    "one stage": Kind(("vllm-0.6", "vllm-0.19", "sglang-0.5.12", "tensorrt-llm-1.2")),
    "pipelines, prompts beside": Kind(("vllm-0.19", "tensorrt-llm-1.2"), degrees=STAGES),
    "pipelines, prompts first": Kind(("sglang-0.5.12",), degrees=STAGES),
    "ranks, prompts beside": Kind(("vllm-0.11", "vllm-0.19"), EXPERTS, degrees=RANKS),
    "ranks, prompts first": Kind(("sglang-0.5.12", "vllm-0.6"), EXPERTS, degrees=RANKS),
    "prefill": Kind(("vllm-0.19", "sglang-0.5.12"), DENSE, (1,)),
    "prefill, experts": Kind(("vllm-0.19", "sglang-0.5.12"), EXPERTS, (1,), [{}, *STAGES[:1]]),
    "prefill, pipelines": Kind(("vllm-0.19", "sglang-0.5.12"), DENSE, (1,), STAGES),
    "prefill, ranks": Kind(("vllm-0.19", "sglang-0.5.12"), EXPERTS, (1,), RANKS),
}


@dataclass(frozen=True)
class Replica:
    """One drawn replica and the length of its requests."""

    data: dict[str, Any]
    prompt: int
    output: int
    words: str

    @classmethod
    def drawn(cls, kind: Kind, seed: int) -> Replica:
        """A random replica of a kind."""
        draw = random.Random(seed)
        budget, engine, model = draw.choice(BUDGETS), draw.choice(kind.engines), draw.choice(kind.models)
        prompt, output = round(draw.choice(SPANS) * budget), draw.choice(kind.outputs)
        degrees, cluster = draw.choice(kind.degrees), draw.choice(CLUSTERS)
        sequences = draw.choice((128, 512))
        options = {"token_budget": budget, "max_sequences": sequences, "prefix_caching": False}
        options["max_context"] = prompt + output + 64
        workload = {"kind": "serving", "arrivals": {"kind": "poisson", "rate": 1.0}}
        workload |= {"input": prompt, "output": output, "requests": REQUESTS}
        deployment = {"engine": engine, **degrees, "options": options}
        data = {"model": model, "cluster": cluster, "workload": workload, "deployment": deployment}
        shape = " ".join(f"{name}={value}" for name, value in degrees.items())
        words = f"seed {seed}: {model} {cluster} {engine} {shape} {prompt}/{output}, {budget} x {sequences}"
        return cls(data, prompt, output, words)

    def setting(self, rate: float, requests: int) -> ServingSetting:
        """A run at a rate.

        Raises:
            MeshwrightError: the model does not fit, or a device has no kernels of it.
        """
        arrivals = {"kind": "poisson", "rate": rate}
        workload = self.data["workload"] | {"arrivals": arrivals, "requests": requests}
        return make_serving({**self.data, "workload": workload}, "serving_loads", Path())

    def steady(self, rates: np.ndarray) -> Steady:
        """Steady states by rate."""
        pool = self.setting(1.0, REQUESTS).pools[0]
        options = pool.options
        table: Any = pool.costs.steps
        room = pool.costs.kv_blocks * options.block_tokens
        limits = Limits(options.token_budget, options.max_sequences, room)
        return steady_state(table, Load(self.prompt, self.output, rate=rates), limits)

    def ran(self, rate: float, seconds: float) -> tuple[float, float]:
        """Mean TTFT and TPOT of a run, s; ``seconds`` of a request in the system, about."""
        requests = int(min(max(REQUESTS, LIFETIMES * seconds * rate), MOST_REQUESTS))
        columns = serve(self.setting(rate, requests)).records.columns()
        settled = slice(int(SETTLED * requests), requests - int(SETTLED * requests))
        ttft = (columns["first_s"] - columns["arrival_s"])[settled].mean()
        decode = (columns["last_s"] - columns["first_s"])[settled].mean()
        return float(ttft), float(decode) / max(self.output - 1, 1)

    def capacity(self, carried: float) -> float:
        """Largest rate at which the event engine's queue does not grow, requests a second.

        Args:
            carried: by the steady state.
        """
        low, high, rate = 0.0, inf, carried
        while high > CLOSE * max(low, carried / FARTHEST):
            if serve(self.setting(rate, REQUESTS)).metrics.sustainable_rate is None:
                low = rate
            else:
                high = rate
            rate = low * STEP if high == inf else high / STEP if not low else (low * high) ** 0.5
        return low or high


@dataclass(frozen=True)
class Point:
    """Steady state over event engine - 1, at a share of the capacity."""

    share: float
    ttft: float
    tpot: float
    words: str


def points_of(replica: Replica) -> tuple[float, list[Point]]:
    """Largest stable rate over capacity - 1, and the points of a replica."""
    states = replica.steady(RATES)
    carried = float(RATES[states.stable].max(initial=RATES[0]))
    capacity = replica.capacity(carried)
    rates = np.array(SHARES) * capacity
    state = replica.steady(rates)
    points = []
    for number, share in enumerate(SHARES):
        ttft, tpot = replica.ran(float(rates[number]), float(state.decode_s[number]) + 1.0)
        over = (
            float(state.ttft_s[number]) / ttft - 1.0,
            float(state.tpot_s[number]) / max(tpot, 1e-12) - 1.0,
        )
        points.append(Point(share, over[0], over[1] if replica.output > 1 else 0.0, replica.words))
    return carried / capacity - 1.0, points


def replicas_of(kind: Kind, count: int, seed: int) -> Iterator[tuple[str, float, list[Point]]]:
    """Replicas that can run, from a seed on: words, largest rate over capacity - 1, and points."""
    done = 0
    while done < count:
        replica, seed = Replica.drawn(kind, seed), seed + 1
        try:
            carried, points = points_of(replica)
        except MeshwrightError:
            continue
        done += 1
        yield replica.words, carried, points


def spread(values: Sequence[float]) -> str:
    """Median, 90th percentile and worst of distances, in words."""
    size = np.minimum(np.abs(values), FARTHEST)
    return f"{np.median(size):.1%} / {np.quantile(size, 0.9):.1%} / {size.max():.1%}"


@command
def main(
    *,
    kind: Annotated[str, "kinds whose name has this"] = "",
    replicas: Annotated[int, "of each kind"] = 8,
    seed: int = 35_000,
    worst: Annotated[int, "points printed"] = 5,
) -> None:
    """Print a paragraph a kind."""
    print("median / p90 / worst distance of the steady state from the event engine")
    for name, each in KINDS.items():
        if kind not in name:
            continue
        drawn_replicas = list(replicas_of(each, replicas, seed))
        points = [point for _, _, drawn in drawn_replicas for point in drawn]
        print(f"{name}: TTFT {spread([point.ttft for point in points])}", end="")
        if max(each.outputs) > 1:
            print(f"; TPOT {spread([point.tpot for point in points])}", end="")
        print(f"; largest rate {spread([carried for _, carried, _ in drawn_replicas])}", flush=True)
        by_error = sorted(points, key=lambda point: -max(abs(point.ttft), abs(point.tpot)))
        for point in by_error[:worst]:
            print(f"    at {point.share:.0%}: TTFT {point.ttft:+.1%}, TPOT {point.tpot:+.1%}  {point.words}")
        for words, carried, _ in sorted(drawn_replicas, key=lambda row: -abs(row[1]))[:worst]:
            print(f"    largest rate {carried:+.1%}  {words}")
