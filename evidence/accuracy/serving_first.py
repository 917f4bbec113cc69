"""Goodput of first choices: what answers tell, against the event engine.

    python -m benchmarks.serving_first [--only NAME]

The first deployment of each question: the rate that the answer tells, after its look at the event engine, and
the largest within the targets there (bisection, three seeds). Well-known questions may be answered by any
deployment; those with prefixes or drafts by one pool without pipeline. ``benchmarks.serving_refined`` has
questions without either.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

import meshwright as mw
from core.errors import InputError
from evidence.command import command
from planner.execution import Execution
from planner.serving.refine import refine_serving

TARGETS = {"ttft": 1.0, "tpot": 0.04}
USUAL = {"isl": 2000, "osl": 300, **TARGETS}
"""README's question without its rate."""
KNOWN: dict[str, dict[str, Any]] = {
    "README": {**USUAL, "model": "qwen3-32b", "cluster": "dgx-h100", "gpus": 16},
    "70B on 16": {**USUAL, "model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 16},
    "gpt-oss on 4": {
        "model": "gpt-oss-20b",
        "cluster": "dgx-h100",
        "gpus": 4,
        "engine": "vllm-0.6",
        "isl": 100,
        "osl": 100,
        "ttft": 0.5,
        "tpot": 0.05,
    },
    "DeepSeek-V3 on 16": {**USUAL, "model": "deepseek-v3", "cluster": "dgx-h200", "gpus": 16},
    "DeepSeek-V3 on 64": {**USUAL, "model": "deepseek-v3", "cluster": "dgx-h200", "gpus": 64},
}
DENSE = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 1, "osl": 200, **TARGETS}
LARGE = {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 4, "osl": 200, **TARGETS}
HEADS = {"cluster": "dgx-h200", "isl": 1000, "osl": 200, **TARGETS}
ONE_POOL: dict[str, dict[str, Any]] = {
    "prefix half, 8B": {**DENSE, "isl": 4000, "prefix": 2000},
    "prefix most, 8B": {**DENSE, "isl": 4000, "prefix": 3600},
    "prefix short, 8B": {**DENSE, "isl": 1000, "prefix": 500},
    "prefix half, 70B": {**LARGE, "isl": 4000, "prefix": 2000},
    "prefix most, 70B": {**LARGE, "isl": 8000, "prefix": 7000},
    "prefix, experts": {**DENSE, "model": "qwen3-30b-a3b", "isl": 4000, "prefix": 3000},
    "mtp:1, 35B experts": {**HEADS, "model": "qwen3.5-35b-a3b", "gpus": 1, "speculate": "mtp:1"},
    "mtp:3, 35B experts": {**HEADS, "model": "qwen3.5-35b-a3b", "gpus": 1, "speculate": "mtp:3"},
    "mtp:1, 27B": {**HEADS, "model": "qwen3.5-27b", "gpus": 1, "speculate": "mtp:1"},
    "mtp:3, 27B": {**HEADS, "model": "qwen3.5-27b", "gpus": 1, "speculate": "mtp:3"},
    "mtp:3, V3 TP8": {**HEADS, "model": "deepseek-v3", "gpus": 8, "speculate": "mtp:3", "tensor": 8},
    "mtp:3, V3 attention DP": {**HEADS, "model": "deepseek-v3", "gpus": 8, "speculate": "mtp:3", "data": 8},
}
FIXED = ("tensor", "data")


def error(name: str) -> tuple[str, float, float]:
    """The first deployment, the rate that the answer tells, and that on the event engine, requests/s."""
    question: dict[str, Any] = dict(KNOWN.get(name) or ONE_POOL[name])
    if name in ONE_POOL:
        fix = {field: question.pop(field) for field in FIXED if field in question}
        fix["speculation"] = question.pop("speculate", "none")
        if "data" in fix:
            fix |= {"tensor": 1, "expert": fix["data"]}
        question |= {"fix": fix, "limit": {"pipeline": 1}, "split": False}
    alone = Execution(workers=1)
    answer = mw.deploy(**question, execution=alone)
    ((_, run),) = refine_serving(answer.search.question, [answer.best], alone)
    return answer.best.describe(), answer.best.goodput, run.goodput


@command
def main(*, only: Annotated[str, "questions whose name has this"] = "") -> None:
    """Print a line a question, and the quantiles of the errors."""
    errors = []
    for name in (*KNOWN, *ONE_POOL):
        if only not in name:
            continue
        words, told, engine = error(name)
        errors.append(told / engine - 1.0)
        print(f"{name:24} {told:7.3g}/s, engine {engine:7.3g}/s, {errors[-1]:+6.1%}  {words}", flush=True)
    if not errors:
        names = ", ".join((*KNOWN, *ONE_POOL))
        raise InputError(f"no question has {only!r} in its name; names: {names}", "--only")
    size = np.abs(errors)
    print(f"{len(errors)} questions: median {np.median(size):.1%}, p90 {np.quantile(size, 0.9):.1%}")
