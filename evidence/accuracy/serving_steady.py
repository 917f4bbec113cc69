"""Steady states beside the event engine on random searches: ``python -m benchmarks.serving_steady``.

    python -m benchmarks.serving_steady [--searches 200] [--seed 35] [--share 0.6] [--worst 8] [--store FILE]

Each search is a question drawn at random: model, cluster, devices, engine, lengths and targets. Its first
deployment runs on the event engine at ``--share`` of its goodput. Printed are the mean end-to-end time of the
steady state over the engine's: the median distance, the worst, and the questions behind the worst ones.
``--store`` keeps each search in a file as it ends, and takes those that it has: a stopped run goes on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from core.errors import MeshwrightError
from evidence.command import command
from meshwright.questions.serving import serving_question
from planner.serving.deployment import scenario_of
from planner.serving.plan import ReplicaGroup, ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import ReplicaCases
from planner.serving.search import search_serving
from planner.serving.search_tables import PricedTables
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.arrivals.poisson import Poisson

MODELS = (
    ("llama3.1-8b", 1),
    ("llama2-13b", 1),
    ("qwen3-32b", 2),
    ("qwen3-30b-a3b", 2),
    ("gpt-oss-20b", 1),
    ("mixtral-8x7b", 4),
    ("llama3.1-70b", 4),
)
"""Models, with the fewest devices that are tried."""
CLUSTERS = ("dgx-h100", "dgx-h200", "dgx-b200", "dgx-a100-80gb", "mi300x-8", "l40s-8")
ENGINES = ("vllm-0.6", "vllm-0.11", "vllm-0.19", "sglang-0.5.12", "tensorrt-llm-1.2")
DEVICES = 1, 2, 4, 8
PROMPTS, OUTPUTS = (100, 700, 2000, 6000), (20, 100, 300)
TTFT, TPOT = (0.5, 1.0, 2.0), (0.02, 0.05)
LEAST_REQUESTS, LIFETIMES, WARM_UP = 3000, 10, 0.2
"""Requests of a run, at least; its length over a request's time in the system; share left out."""
NONE = dict.fromkeys(("share", "engine", "objective", "rate", "isl", "osl"))


def drawn(seed: int) -> dict[str, Any]:
    """A random question, as the flags of ``plan serve``."""
    draw = random.Random(seed)
    model, least = draw.choice(MODELS)
    return {
        **NONE,
        "model": model,
        "cluster": draw.choice(CLUSTERS),
        "gpus": draw.choice([count for count in DEVICES if count >= least]),
        "isl": draw.choice(PROMPTS),
        "osl": draw.choice(OUTPUTS),
        "ttft": draw.choice(TTFT),
        "tpot": draw.choice(TPOT),
        "engine": draw.choice(ENGINES),
    }


def first_of(flags: dict[str, Any]) -> tuple[ServingQuestion, ServingPlan] | None:
    """A question and its first deployment; None where nothing fits or meets the targets."""
    try:
        question = serving_question(None, flags, {}, {})
        plans = search_serving(question, 1).plans
    except MeshwrightError:
        return None
    return (question, plans[0]) if plans else None


def states_of(question: ServingQuestion, group: ReplicaGroup, other: ReplicaGroup, rates: np.ndarray) -> Any:
    """Steady states of a replica of a pool beside another pool, by the rate of the whole pool."""
    cases = ReplicaCases.of_group(question, group, len(rates))
    link = group.shape.link_to(other.shape, question.devices)
    cases = cases.over(np.full(len(rates), link))
    rates = rates / group.replicas
    state = cases.state(rates)
    sent = cases.transfer_s(rates, state.prefill_s) if group.role == "prefill" else 0.0 * rates
    return state, sent


def steady_e2e(question: ServingQuestion, plan: ServingPlan, rates: np.ndarray) -> np.ndarray:
    """Mean end-to-end time by the steady state, s; infinite where the queue grows."""
    first, sent = states_of(question, plan.groups[0], plan.groups[-1], rates)
    last, _ = states_of(question, plan.groups[-1], plan.groups[0], rates)
    stable = first.stable & last.stable
    return np.where(stable, first.ttft_s + sent + last.decode_s, inf)


def engine_e2e(question: ServingQuestion, plan: ServingPlan, rate: float) -> float:
    """The same by the event engine."""
    seconds = float(steady_e2e(question, plan, np.array([rate]))[0])
    requests = max(LEAST_REQUESTS, int(min(LIFETIMES * seconds * rate, 10 * LEAST_REQUESTS)))
    scenario = scenario_of(question, plan)
    scenario["workload"] |= {"requests": requests, "warmup": WARM_UP}
    tables = PricedTables([group.shape for group in plan.groups], question.sample)
    setting = make_serving(scenario, "plan", Path(), tables)
    serving = setting.serving.model_copy(update={"arrivals": Poisson(rate=rate)})
    columns = serve(replace(setting, serving=serving)).records.columns()
    return float((columns["last_s"] - columns["arrival_s"])[int(WARM_UP * requests) :].mean())


@dataclass(frozen=True)
class Compared:
    """One search.

    Attributes:
        ratio: mean end-to-end time, steady state over event engine, - 1.
        words: the question and the deployment.
    """

    ratio: float
    words: str


def search_of(seed: int, share: float) -> Compared | None:
    """The search of a seed; None where it has no answer."""
    flags = drawn(seed)
    first = first_of(flags)
    if first is None:
        return None
    question, plan = first
    rate = share * plan.goodput
    steady = float(steady_e2e(question, plan, np.array([rate]))[0])
    flag_words = " ".join(str(value) for value in flags.values() if value is not None)
    words = f"seed {seed}: {flag_words}: {plan.describe()}, {plan.goodput:.4g}/s"
    return Compared(steady / engine_e2e(question, plan, rate) - 1.0, words)


def compared(searches: int, seed: int, share: float, store: Path | None) -> Iterator[Compared]:
    """Searches that have an answer, one after another, from a seed on.

    Args:
        store: file of searches that ended, a line each; None keeps none.
    """
    lines = store.read_text().splitlines() if store and store.exists() else []
    stored = {(key, at): row and Compared(*row) for key, at, row in map(json.loads, lines)}
    done = 0
    while done < searches:
        if (seed, share) not in stored:
            row = stored[seed, share] = search_of(seed, share)
            if store:
                with store.open("a") as file:
                    file.write(json.dumps([seed, share, row and astuple(row)]) + "\n")
        row, seed = stored[seed, share], seed + 1
        if row is not None:
            done += 1
            yield row


@command
def main(
    *,
    searches: int = 200,
    seed: int = 35000,
    share: Annotated[float, "of the goodput"] = 0.6,
    worst: Annotated[int, "questions printed"] = 8,
    store: Annotated[Path | None, "file that keeps searches as they end"] = None,
) -> None:
    """Print the sum, and the worst questions."""
    rows = sorted(compared(searches, seed, share, store), key=lambda row: -abs(row.ratio))
    distances = np.array([abs(row.ratio) for row in rows])
    print(
        f"{len(rows)} searches at {share:.0%} of goodput: median distance "
        f"{np.median(distances):.1%}, "
        f"95th percentile {np.quantile(distances, 0.95):.1%}, worst {distances.max():.1%}; beyond 15 %: "
        f"{np.count_nonzero(distances > 0.15)}"
    )
    for row in rows[:worst]:
        print(f"{row.ratio:+8.1%}  {row.words}")
