"""Goodput of first choices on the event engine: ``python -m benchmarks.serving_first``.

    python -m benchmarks.serving_first [--only gpt-oss]

The steady state ranks the deployments of a few well-known questions. The first one runs on the event engine
at rates above and below its goodput, to find the largest one at which 90 % of the requests meet the targets.
Printed are both rates and the distance of the first from the second.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from core.errors import InfeasibleError
from meshwright.questions.serving import serving_question
from planner.serving.deployment import scenario_of
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.refine import bisect, lifetime, settled
from planner.serving.search import search_serving
from planner.serving.search_tables import PricedTables
from simulator.serving.scenario import make_serving

QUESTIONS: dict[str, dict[str, Any]] = {
    "README": {"model": "qwen3-32b", "cluster": "dgx-h100", "gpus": 16},
    "70B on 16": {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 16},
    "gpt-oss on 4": {
        "model": "gpt-oss-20b",
        "cluster": "dgx-h100",
        "gpus": 4,
        "isl": 100,
        "osl": 100,
        "ttft": 0.5,
        "tpot": 0.05,
        "engine": "vllm-0.6",
    },
    "DeepSeek-V3 on 16": {"model": "deepseek-v3", "cluster": "dgx-h200", "gpus": 16},
    "DeepSeek-V3 on 64": {"model": "deepseek-v3", "cluster": "dgx-h200", "gpus": 64},
}
"""README's question without its rate, and others."""
USUAL = dict.fromkeys(("share", "objective", "rate", "engine")) | {
    "isl": 2000,
    "osl": 300,
    "ttft": 1.0,
    "tpot": 0.04,
}


def first_of(values: dict[str, Any]) -> tuple[ServingQuestion, ServingPlan]:
    """A question and the deployment that carries most."""
    question = serving_question(None, {**USUAL, **values}, {}, {})
    plans = search_serving(question, 1).plans
    if not plans:
        raise InfeasibleError("nothing meets the targets")
    return question, plans[0]


def engine_rate(question: ServingQuestion, plan: ServingPlan) -> float:
    """Largest rate of a deployment within the targets on the event engine, requests a second."""
    tables = PricedTables([group.shape for group in plan.groups], question.sample)
    setting = make_serving(scenario_of(question, plan), "plan", Path(), tables)
    return bisect(settled(setting, plan.goodput * lifetime(question, plan)), plan.goodput, None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Goodput of first choices on the event engine.")
    parser.add_argument("--only", default="", help="part of a question's name")
    only = parser.parse_args().only
    asked = {name: values for name, values in QUESTIONS.items() if only in name}
    if not asked:
        parser.error(f"no question has {only!r} in its name; names: {', '.join(QUESTIONS)}")
    print(f"{'question':18} {'first choice':50} {'steady':>9} {'engine':>9}   off by")
    for name, values in asked.items():
        question, plan = first_of(values)
        rate = engine_rate(question, plan)
        off = f"{plan.goodput / rate - 1.0:+.1%}" if rate else "no rate holds"
        print(f"{name:18} {plan.describe():50} {plan.goodput:7.4g}/s {rate:7.4g}/s   {off}", flush=True)


if __name__ == "__main__":
    main()
