"""Whether steady states rank deployments as the event engine does, and agree in rates and latencies.

    python -m benchmarks.serving_refined [--plans 3] [--seeds 3] [--questions 30] [--store FILE] [--wrong]

For each question the best plans of one pool and the best of two pools run on the event engine: the largest
rate within the targets by seed, with common random numbers for all plans of a question. A pair of plans is
separated where the paired difference of its rates exceeds its 95 % confidence interval and the precision of
the search for the largest rate. The variance is pooled over the pairs of a question. Kendall's tau is
printed over all pairs and over separated pairs; ``--wrong`` lists the pairs in wrong order. ``--store`` keeps
the engine's figures in a JSON file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, inf, log
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from scipy.stats import t as student_t

from evidence.command import command
from meshwright.questions.serving import serving_question
from planner.serving.deployment import scenario_of
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import ROLES, ReplicaCases, tpot_quantile, ttft_quantile
from planner.serving.search import search_serving
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting
from simulator.serving.workload.arrivals.poisson import Poisson

VARIED = (
    {"kind": "lognormal", "median": 700, "sigma": 1.0, "most": 8000},
    {"kind": "lognormal", "median": 180, "sigma": 0.8, "most": 2000},
)
"""Prompt and output lengths of a chat."""
LOADS = (
    (1000, 200, 0.5, 0.03),
    (4000, 400, 1.5, 0.04),
    (300, 600, 0.4, 0.025),
    (8000, 100, 3.0, 0.05),
    (*VARIED, 1.0, 0.04),
)
"""Prompt and output tokens, TTFT and TPOT targets, s."""
MODELS = (
    ("llama3.1-8b", "dgx-h100", 4),
    ("qwen3-32b", "dgx-h100", 8),
    ("llama3.1-70b", "dgx-h100", 16),
    ("mixtral-8x7b", "dgx-h100", 8),
    ("gpt-oss-120b", "dgx-h100", 8),
)
OTHERS = (
    ("llama3.1-8b", "l40s-8", 8, 1000, 200, 1.0, 0.05),
    ("llama3.1-8b", "dgx-a100-80gb", 8, *VARIED, 0.5, 0.03),
    ("llama3.1-70b", "mi300x-8", 8, *VARIED, 1.5, 0.06),
    ("qwen3-30b-a3b", "dgx-h200", 8, 2000, 300, 0.5, 0.02),
    ("deepseek-v3", "dgx-h200", 16, 2000, 300, 2.0, 0.06),
)
QUESTIONS = tuple((*model, *load) for model in MODELS for load in LOADS) + OTHERS
LEAST_REQUESTS = 6000
LIFETIMES, WARM_UP = 8, 0.2
"""Length of a run over a request's time in the system, and the share of its requests left out."""
CLOSE = 1.03
"""Ends of the interval inside which the largest rate is interpolated, as a ratio."""
FINEST = 1.003
"""The same where the latency at the upper end is infinite."""
CONFIDENCE = 0.975
"""Quantile of Student's t for intervals of 95 %."""
SHARES = (0.7, 0.9)
"""Loads at which latencies are compared, as shares of the engine's largest rate."""


def question_of(row: Sequence[Any]) -> ServingQuestion:
    """A row of ``QUESTIONS`` as a question."""
    model, cluster, gpus, prompt, output, ttft, tpot = row
    keys = dict.fromkeys(("share", "engine", "objective", "rate", "isl", "osl"))
    keys |= {"model": model, "cluster": cluster, "gpus": gpus, "ttft": ttft, "tpot": tpot}
    lengths = [
        {"kind": "fixed", "tokens": tokens} if isinstance(tokens, int) else tokens
        for tokens in (prompt, output)
    ]
    slo = {"ttft": ttft, "tpot": tpot}
    workload = {"kind": "serving", "input": lengths[0], "output": lengths[1], "slo": slo}
    workload["arrivals"] = {"kind": "poisson", "rate": 1.0}
    scenario = {"model": model, "cluster": cluster, "gpus": gpus, "workload": workload}
    return serving_question(scenario, keys, {}, {})


def plans_of(question: ServingQuestion, count: int) -> list[ServingPlan]:
    """The best plans of one pool and of two, best first."""
    kinds = [search_serving(replace(question, split=split), 8 * count).plans for split in (False, True)]
    apart = [plan for plan in kinds[1] if len(plan.groups) > 1]
    return sorted([*kinds[0][:count], *apart[:count]], key=lambda plan: -plan.goodput)


@dataclass(frozen=True)
class Engine:
    """Figures of one plan on the event engine: the largest rate by seed, and the latencies by rate."""

    rates: Sequence[float]
    runs: Sequence[dict[str, float]]


def run_at(setting: ServingSetting, rate: float) -> dict[str, float]:
    """Latencies of one run; ``excess`` is the share's quantile of the largest latency over its target."""
    serving = setting.serving.model_copy(update={"arrivals": Poisson(rate=rate)})
    result = serve(replace(setting, serving=serving))
    columns, slo = result.records.columns(), serving.slo
    measured = slice(int(serving.skipped * len(result.records)), None)
    ttft = (columns["first_s"] - columns["arrival_s"])[measured]
    gaps = np.maximum(columns["output"][measured] - 1, 1)
    tpot = (columns["last_s"] - columns["first_s"])[measured] / gaps
    worst = np.maximum(ttft / (slo.ttft or inf), tpot / (slo.tpot or inf))
    grows = result.metrics.sustainable_rate is not None
    several = columns["output"][measured] > 1
    return {
        "rate": rate,
        "excess": inf if grows else float(np.quantile(worst, slo.share)),
        "ttft": float(np.quantile(ttft, slo.share)),
        "tpot": float(np.quantile(tpot[several], slo.share)),
        "ttft_mean": float(ttft.mean()),
        "tpot_mean": float(tpot[several].mean()),
        "running": result.metrics.running,
        "kv": result.metrics.kv_use,
        "preemptions": float(result.metrics.preemptions),
    }


def largest(meets: Callable[[float], float], expected: float) -> float:
    """Rate at which ``meets`` is 1: a bracket around it, then linear in logarithms."""
    ends: dict[bool, tuple[float, float]] = {}
    rate, factor = expected, CLOSE
    for _ in range(16):
        excess = meets(rate)
        ends[excess > 1.0] = rate, excess
        if len(ends) < 2:
            rate, factor = rate / factor if excess > 1.0 else rate * factor, min(factor**1.7, 2.0)
            continue
        (low, below), (high, above) = ends[False], ends[True]
        if high / low <= (CLOSE if above < 3.0 else FINEST):
            if above == inf:
                return low
            return low * exp(log(high / low) * log(1.0 / below) / log(above / below))
        rate = (low * high) ** 0.5
    return ends[False][0] if False in ends else 0.0


def engine_figures(question: ServingQuestion, plan: ServingPlan, seeds: int, store: Store) -> Engine:
    """Run one plan."""
    slo = question.workload.slo
    lifetime = (slo.ttft or 0.0) + (slo.tpot or 0.0) * question.output
    requests = LEAST_REQUESTS
    while requests < LIFETIMES * lifetime * plan.goodput:
        requests *= 2
    scenario = scenario_of(question, plan, 1.0)
    scenario["workload"] |= {"requests": requests, "warmup": WARM_UP}
    rates, runs = [], []
    for seed in range(seeds):
        key = store.key(scenario, seed)
        if key not in store.stored:
            setting = replace(make_serving(scenario, "plan", Path()), seed=seed)
            records: list[dict[str, float]] = []

            def excess(rate: float, setting: ServingSetting = setting, records: list = records) -> float:
                records.append(run_at(setting, rate))
                return records[-1]["excess"]

            rate = largest(excess, plan.goodput)
            if not seed and rate:
                records += [run_at(setting, share * rate) for share in SHARES]
            store.put(key, {"plan": scenario["title"], "rate": rate, "runs": records})
        rates.append(store.stored[key]["rate"])
        runs += store.stored[key]["runs"]
    return Engine(rates, runs)


class Store:
    """The engine's figures by scenario and seed, in a JSON file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.stored: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}

    def key(self, scenario: dict[str, Any], seed: int) -> str:
        """Key of one run."""
        keys = {name: value for name, value in scenario.items() if name not in ("title", "seed")}
        return hashlib.sha256(json.dumps([keys, seed], sort_keys=True).encode()).hexdigest()

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keep one result."""
        self.stored[key] = value
        if self.path:
            self.path.write_text(json.dumps(self.stored))


def steady_latencies(
    question: ServingQuestion, plan: ServingPlan, rates: np.ndarray
) -> dict[str, np.ndarray]:
    """TTFT and TPOT of the targets' share by the steady state, and the means; shape (rates,)."""
    latencies = {}
    for group in plan.groups:
        every = np.ones(len(rates))
        cases = replace(
            ReplicaCases.of(question, [group.shape], [ROLES.index(group.role)])[0 * every.astype(np.int64)],
            budget=group.budget * every,
            sequences=group.sequences * every,
            replicas=group.replicas * every,
        )
        latencies[group.role] = cases.state(rates / group.replicas)
    first, last = (latencies[plan.groups[at].role] for at in (0, -1))
    return {
        "ttft": ttft_quantile(question, first),
        "ttft_mean": first.ttft_s,
        "tpot": np.where(last.stable, tpot_quantile(question, last), inf),
        "tpot_mean": np.where(last.stable, last.tpot_s, inf),
    }


@dataclass(frozen=True)
class Pair:
    """Two plans of one question."""

    right: float
    """1 in the engine's order, -1 in the opposite one, 0 where the steady state sees no difference."""
    separated: bool
    words: str


def pairs_of(plans: Sequence[ServingPlan], engines: Sequence[Engine]) -> Iterator[Pair]:
    """All pairs of plans that differ on the engine, by the paired difference over seeds."""
    rates = np.array([engine.rates for engine in engines])
    seeds = rates.shape[1]
    # What plan and seed means leave: paired differences have twice its variance.
    rest = rates - rates.mean(axis=1, keepdims=True) - rates.mean(axis=0) + rates.mean()
    freedom = (len(plans) - 1) * (seeds - 1)
    half = student_t.ppf(CONFIDENCE, freedom) * (2.0 * (rest**2).sum() / freedom / seeds) ** 0.5
    for first, other in combinations(range(len(plans)), 2):
        difference = rates[first] - rates[other]
        mean, promised = difference.mean(), plans[first].goodput - plans[other].goodput
        if abs(promised) <= TIE * plans[first].goodput:
            promised = 0.0
        words = "; ".join(
            f"{plans[at].describe()}: steady {plans[at].goodput:.4g}, engine {rates[at].mean():.4g} "
            f"({limit_of(engines[at])})"
            for at in (first, other)
        )
        yield Pair(
            float(np.sign(mean) * np.sign(promised)),
            bool(abs(mean) > half + RESOLUTION * rates[[first, other]].mean()),
            f"{words}; engine's difference {mean:.3g} +- {half:.2g}",
        )


RESOLUTION = 0.003
"""Relative precision of the engine's largest rate of one seed: its interpolation."""
TIE = 1e-3
"""Relative difference of steady rates, twice the precision of their search, below which plans are equal."""


def limit_of(engine: Engine) -> str:
    """What limits a plan near its largest rate on the engine."""
    rate = float(np.mean(engine.rates))
    closest = min(engine.runs, key=lambda run: abs(run["rate"] - rate))
    return (
        f"at {closest['rate']:.4g}/s ttft {closest['ttft']:.3g} s, tpot {1e3 * closest['tpot']:.3g} ms, "
        f"{closest['running']:.0f} running, KV {closest['kv']:.0%}, {closest['preemptions']:.0f} preempted"
    )


def agreement(
    question: ServingQuestion, plan: ServingPlan, engine: Engine
) -> Iterator[tuple[str, float, float]]:
    """Name, share of the largest rate, and steady over engine - 1 of every latency of stable runs."""
    rate = float(np.mean(engine.rates))
    runs = [run for run in engine.runs if run["excess"] < inf and run["rate"] <= 0.95 * rate]
    if not runs:
        return
    promised = steady_latencies(question, plan, np.array([run["rate"] for run in runs]))
    for number, run in enumerate(runs):
        for name, values in promised.items():
            yield name, run["rate"] / rate, float(values[number] / run[name] - 1.0)


def tau(pairs: Sequence[Pair]) -> str:
    """Kendall's tau over pairs, in words; a pair that the steady state does not order counts as none."""
    signs = [pair.right for pair in pairs]
    return f"{np.mean(signs):.2f} over {len(signs)}" if signs else "none over 0"


def print_sum(
    regrets: Sequence[float],
    errors: Sequence[float],
    pairs: Sequence[Pair],
    latencies: Sequence[tuple[str, float, float]],
) -> None:
    """Print figures over all questions."""
    print(
        f"{len(regrets)} questions: first choice {np.mean(regrets):.1%} below the best on average, "
        f"{max(regrets):.1%} at worst"
    )
    parted = [pair for pair in pairs if pair.separated]
    print(f"Kendall's tau {tau(parted)} separated pairs, {tau(pairs)} pairs in all")
    print(
        f"largest rate, steady state over event engine: {len(errors)} plans, bias {np.mean(errors):+.1%}, "
        f"median {np.median(errors):+.1%}, median distance {np.median(np.abs(errors)):.1%}, "
        f"95th percentile {np.quantile(np.abs(errors), 0.95):.1%}"
    )
    for name in dict.fromkeys(name for name, _, _ in latencies):
        values = np.array([value for kind, _, value in latencies if kind == name])
        print(
            f"{name}: {len(values)} runs, median {np.median(values):+.1%}, median distance "
            f"{np.median(np.abs(values)):.1%}, 95th percentile {np.quantile(np.abs(values), 0.95):.1%}"
        )


@command
def main(
    *,
    plans: Annotated[int, "of one pool, and of two"] = 3,
    seeds: Annotated[int, "at least 2"] = 3,
    questions: int = len(QUESTIONS),
    store: Path | None = None,
    wrong: Annotated[bool, "list pairs in wrong order"] = False,
) -> None:
    """Print every question and the sum."""
    runs, pairs = Store(store), []
    regrets, errors, latencies = [], [], []
    for row in QUESTIONS[:questions]:
        question = question_of(row)
        compared_plans = plans_of(question, plans)
        name = f"{row[0]} {row[2]} x {row[1]} " + "/".join(
            f"{tokens}" if isinstance(tokens, int) else "varied" for tokens in row[3:5]
        )
        engines = [engine_figures(question, plan, seeds, runs) for plan in compared_plans]
        ran = np.array([np.mean(engine.rates) for engine in engines])
        if not len(ran) or ran.max() <= 0.0:
            print(f"{name}: nothing meets the targets on the event engine", flush=True)
            continue
        regrets.append(1.0 - ran[0] / ran.max())
        promised = np.array([plan.goodput for plan in compared_plans])
        errors += list((promised / ran)[ran > 0.0] - 1.0)
        compared = list(pairs_of(compared_plans, engines))
        parted = [pair for pair in compared if pair.separated]
        words = ", ".join(
            f"{promise:.3g} ({other:.3g})" for promise, other in zip(promised, ran, strict=True)
        )
        told_tau = f"tau {tau(parted)} of {len(compared)}"
        print(f"{name}: first {regrets[-1]:.1%} below the best; {told_tau}; {words}", flush=True)
        if wrong:
            for pair in parted:
                if pair.right <= 0.0:
                    print(f"    {'wrong' if pair.right < 0.0 else 'equal'}: {pair.words}")
        pairs += compared
        for plan, engine in zip(compared_plans, engines, strict=True):
            latencies += list(agreement(question, plan, engine))
    print_sum(regrets, errors, pairs, latencies)
