"""Mélange's six settings: what the cheapest mix of GPU types saves over one type alone, beside its figures.

    python -m benchmarks.mixes [--rates 1 4 16]

Prices and targets are the paper's (Griggs et al., arXiv:2404.14527, table 1 and section 6): Llama 2 7B on
L4, A10G, A100-80GB and H100, one device a replica. Its profiles and request lengths are not public:
throughputs are this program's own, and lengths are lognormal with the means of LMSYS-Chat-1M's paper (69.5
and 214.5 tokens) and of PubMed's articles and abstracts (3,016 and 203 words), the articles cut to Llama
2's context.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

import meshwright as mw
from evidence.command import command
from planner.serving.mix.allocation import Allocation

TYPES = ["l4@0.70", "a10g@1.01", "a100-sxm-80gb@3.67", "h100-sxm@7.516"]
PUBLISHED = {
    ("arena", 0.12): (15, 77),
    ("arena", 0.04): (9, 68),
    ("pubmed", 0.12): (15, 33),
    ("pubmed", 0.04): (2, 22),
    ("mixed", 0.12): (13, 51),
    ("mixed", 0.04): (4, 51),
}
"""Least and largest saving over the single types, percent."""
REQUESTS = 4000


def lengths(name, random):
    """Prompt and output tokens of one data set, shape (requests, 2)."""
    if name == "mixed":
        long = random.random(REQUESTS) < 0.2
        return np.where(long[:, None], lengths("pubmed", random), lengths("arena", random))
    prompt, output, limit = {"arena": (69.5, 214.5, 2048), "pubmed": (3016 * 1.33, 203 * 1.33, 3400)}[name]
    sigma = {"arena": (1.2, 0.9), "pubmed": (0.6, 0.4)}[name]
    drawn = [
        random.lognormal(np.log(mean) - 0.5 * width**2, width, REQUESTS)
        for mean, width in zip((prompt, output), sigma, strict=True)
    ]
    return np.stack([np.clip(drawn[0], 4, limit), np.clip(drawn[1], 4, 650)], axis=1).round().astype(int)


def write_trace(path, rows):
    """An Azure 2023 trace of the lengths, one request a second."""
    start = datetime(2024, 1, 1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for second, (prompt, output) in enumerate(rows):
            writer.writerow([str(start + timedelta(seconds=second)) + ".0000000", prompt, output])


def question(path, rate, tpot):
    """A setting as a scenario."""
    return {
        "model": "llama2-7b",
        "deployment": {"engine": "vllm-0.4"},
        "workload": {
            "kind": "serving",
            "arrivals": {"kind": "poisson", "rate": rate},
            "trace": {"format": "azure", "path": str(path)},
            "slo": {"tpot": tpot},
        },
    }


@command
def main(*, rates: Sequence[float] = (1, 2, 4, 8, 16, 32)) -> None:
    """Print every setting and rate."""
    with tempfile.TemporaryDirectory() as folder:
        for (name, tpot), (least, largest) in PUBLISHED.items():
            path = Path(folder) / f"{name}.csv"
            write_trace(path, lengths(name, np.random.default_rng(0)))
            savings = []
            for rate in rates:
                cheapest = mw.mix(TYPES, question(path, rate, tpot), fix={"tensor": 1}, split=False)
                alone = {
                    kind: allocation.usd_per_hour
                    for kind, allocation in cheapest.alone.items()
                    if isinstance(allocation, Allocation)
                }
                savings += [1 - cheapest.best.usd_per_hour / cost for cost in alone.values()]
                rented = " + ".join(
                    f"{count} {option.offer.name}"
                    for option, count in zip(cheapest.options, cheapest.best.replicas, strict=True)
                    if count
                )
                costs = "  ".join(f"{kind} {cost:6.2f}" for kind, cost in alone.items())
                print(
                    f"{name:7} TPOT {1e3 * tpot:3.0f} ms {rate:4g}/s: {cheapest.best.usd_per_hour:6.2f} $/h "
                    f"(gap {cheapest.best.gap:.1%}) {rented}; alone: {costs}",
                    flush=True,
                )
            print(
                f"{name:7} TPOT {1e3 * tpot:3.0f} ms: saves {100 * min(savings):.0f} to "
                f"{100 * max(savings):.0f} %; published {least} to {largest} %",
                flush=True,
            )
