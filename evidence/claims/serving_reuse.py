"""Steady state against event engine where prompts share prefixes and where heads draft tokens.

    python -m benchmarks.serving_reuse [--only NAME]

The first deployment of each question of one pool: its largest rate within the targets on the steady state,
and on the event engine (bisection, three seeds). ``benchmarks.serving_refined`` has questions without either.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import meshwright as mw
from planner.execution import Execution

TARGETS = {"ttft": 1.0, "tpot": 0.04}
DENSE = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 1, "osl": 200, **TARGETS}
LARGE = {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 4, "osl": 200, **TARGETS}
HEADS = {"cluster": "dgx-h200", "isl": 1000, "osl": 200, **TARGETS}
QUESTIONS: dict[str, dict[str, Any]] = {
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


def error(asked: dict[str, Any]) -> tuple[str, float, float]:
    """The first deployment, its rate on the steady state, and that on the event engine, requests/s."""
    asked = dict(asked)
    fix = {name: asked.pop(name) for name in FIXED if name in asked}
    fix["speculation"] = asked.pop("speculate", "none")
    if "data" in fix:
        fix |= {"tensor": 1, "expert": fix["data"]}
    found = mw.deploy(
        **asked, fix=fix, limit={"pipeline": 1}, split=False, top=1, refine=1, execution=Execution(workers=1)
    )
    return found.best.describe(), found.best.goodput, found.refined[0].goodput


def main() -> None:
    """Print a line a question, and the quantiles of the errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="questions whose name has this")
    given = parser.parse_args()
    errors = []
    for name, asked in QUESTIONS.items():
        if given.only not in name:
            continue
        told, steady, engine = error(asked)
        errors.append(steady / engine - 1.0)
        print(f"{name:24} {steady:7.3g}/s, engine {engine:7.3g}/s, {errors[-1]:+6.1%}  {told}", flush=True)
    size = np.abs(errors)
    print(f"{len(errors)} questions: median {np.median(size):.1%}, p90 {np.quantile(size, 0.9):.1%}")


if __name__ == "__main__":
    main()
