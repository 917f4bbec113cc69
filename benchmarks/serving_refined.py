"""Whether steady states rank deployments as the event engine does: twenty questions, the best plans of each.

    python -m benchmarks.serving_refined [--plans 4] [--questions 20]

Each plan's largest rate within the targets comes from the steady state and from bisection on the event
engine (three seeds). A pair of plans counts for Kendall's tau where the confidence intervals part them.
"""

from __future__ import annotations

import argparse
from itertools import combinations, product

import numpy as np

import meshwright as mw

MODELS = (
    ("llama3.1-8b", 4),
    ("qwen3-32b", 8),
    ("llama3.1-70b", 16),
    ("mixtral-8x7b", 8),
    ("gpt-oss-120b", 8),
)
LOADS = ((1000, 200, 0.5, 0.03), (4000, 400, 1.5, 0.04), (300, 600, 0.4, 0.025), (8000, 100, 3.0, 0.05))
"""Prompt and output tokens, TTFT and TPOT targets, s."""


def main():
    """Print every question and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=4)
    parser.add_argument("--questions", type=int, default=len(MODELS) * len(LOADS))
    given = parser.parse_args()
    agree = pairs = 0
    regrets, gaps = [], []
    for (model, gpus), (prompt, output, ttft, tpot) in list(product(MODELS, LOADS))[: given.questions]:
        found = mw.deploy(
            model=model,
            cluster="dgx-h100",
            gpus=gpus,
            isl=prompt,
            osl=output,
            ttft=ttft,
            tpot=tpot,
            top=given.plans,
            refine=given.plans,
        )
        told = np.array([plan.goodput for plan in found.search.plans])
        runs = [found.refined[index] for index in range(len(told))]
        ran = np.array([run.goodput for run in runs])
        if not len(ran) or ran.max() <= 0:
            print(f"{model} {prompt}/{output}: nothing meets the targets on the event engine", flush=True)
            continue
        regret = 1 - ran[0] / ran.max()
        regrets.append(regret)
        gaps += [one / other - 1 for one, other in zip(told, ran, strict=True) if other > 0]
        for one, other in combinations(range(len(ran)), 2):
            if abs(ran[one] - ran[other]) > runs[one].half_width + runs[other].half_width:
                agree += np.sign((ran[one] - ran[other]) * (told[one] - told[other]))
                pairs += 1
        words = ", ".join(f"{one:.3g} ({other:.3g})" for one, other in zip(told, ran, strict=True))
        print(
            f"{model} {gpus} GPUs {prompt}/{output}: first {regret:5.1%} below the best; {words}", flush=True
        )
    tau = f"{agree / pairs:.2f} over {pairs} pairs" if pairs else "no pair parted"
    print(
        f"all: first choice {np.mean(regrets):.1%} below the best on average, {max(regrets):.1%} at worst; "
        f"tau {tau}; steady state over event engine median {np.median(gaps):+.1%}, median distance "
        f"{np.median(np.abs(gaps)):.1%}"
    )


if __name__ == "__main__":
    main()
