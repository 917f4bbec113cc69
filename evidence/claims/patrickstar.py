"""PatrickStar's 60 figures on 1 to 8 V100 and A100: ``python -m benchmarks.patrickstar``.

Prints each figure of its README beside the prediction with the micro batch that runs best of those that fit
(the authors swept it and do not state the best), then medians, and the largest model that fits on eight GPUs
of each kind. Models are Hugging Face's BERT with 16 heads and eager kernels (examples/model_builder.py),
TFLOP/s are 8 a parameter and token (pretrain_demo.py), gathers and reductions block (core/client.py:
async_op=False).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evidence.command import command
from planner.training.offload import fits_tiers
from simulator.ops.counts import model_parameters
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training import predict
from simulator.training.memory import memory

TABLE = Path(__file__).with_name("published_patrickstar.csv")
CLUSTERS = {"V100": ("dgx-1v", 240e9), "A100": ("dgx-a100-80gb", 1024e9)}
"""Cluster and host memory of each node (the README states the memory)."""
MICRO_BATCHES = (4, 8, 16)
VOCABULARY = 30522
"""BERT's embedding; the classifier has no output layer."""
LARGEST = {"V100": "18B", "A100": "68B"}


class Row(NamedTuple):
    """One published figure; ``tflops`` of all GPUs."""

    row: str
    gpu: str
    gpus: int
    size: str
    layers: int
    hidden: int
    tflops: float


@cache
def table() -> tuple[Row, ...]:
    """The published figures."""
    lines = (line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(
        Row(
            r["row"],
            r["gpu"],
            int(r["gpus"]),
            r["size"],
            int(r["layers"]),
            int(r["hidden"]),
            float(r["tflops"]),
        )
        for r in csv.DictReader(lines)
    )


def tflops(row: Row, micro_batch: int) -> float:
    """TFLOP/s of all GPUs; 0 where the plan does not fit."""
    cluster, host = CLUSTERS[row.gpu]
    model: dict[str, object] = {
        "name": f"bert-{row.size.lower()}",
        "layers": row.layers,
        "hidden": row.hidden,
        "heads": 16,
        "kv_heads": 16,
        "feed_forward": 4 * row.hidden,
        "vocabulary": 128,
        "max_sequence": 1024,
        "activation": "gelu",
        "norm": "layernorm",
        "position": "learned",
        "tied_embeddings": True,
        "bias": True,
    }
    plan = {
        "zero": 3,
        "recompute": "full",
        "micro_batch": micro_batch,
        "place": "patrickstar",
        "overlap_parameters": False,
        "overlap_gradients": False,
        "elementwise": "eager",
    }
    batch = micro_batch * row.gpus
    question = {
        "model": model,
        "cluster": cluster,
        "gpus": row.gpus,
        "workload": {"seq_len": 1024, "global_batch": batch, "precision": "fp16", "causal": False},
        "framework": "deepspeed-zero3",
        "plan": plan,
    }
    scenario = make_scenario(question, "patrickstar", Path())
    plans = Plans.of(scenario.needed_plan("patrickstar"))
    step = predict(scenario.setting, plans)
    footprint = memory(scenario.setting, plans, step.stages, step.parameters)
    fits = (footprint.peak <= scenario.setting.cluster.device.memory_bytes) & (
        footprint.on_tier("host") <= host
    )
    if not (fits & fits_tiers(scenario.setting.cluster, footprint)).all():
        return 0.0
    count = model_parameters(scenario.setting.model) + VOCABULARY * row.hidden
    return 8 * count * scenario.setting.training.tokens / float(step.time[0]) / 1e12


def best(row: Row) -> tuple[float, int]:
    """The most TFLOP/s over micro batches that fit, and that micro batch; 0 where none does."""
    return max((tflops(row, size), size) for size in MICRO_BATCHES)


def rows() -> Iterator[str]:
    """Lines of the table, in Markdown, and its summary."""
    yield "| row | GPUs | model | published | predicted | micro batch | deviation |"
    yield "|---|---|---|---|---|---|---|"
    gaps: dict[str, list[float]] = {"V100": [], "A100": []}
    for row in table():
        rate, size = best(row)
        if not rate:
            yield f"| {row.row} | {row.gpus} {row.gpu} | {row.size} | {row.tflops:g} | does not fit | - | - |"
            continue
        gap = rate / row.tflops - 1
        gaps[row.gpu].append(gap)
        published = f"{row.row} | {row.gpus} {row.gpu} | {row.size} | {row.tflops:g} TFLOP/s"
        yield f"| {published} | {rate:.4g} | {size} | {gap:+.1%} |"
    yield ""
    for name, some in (*gaps.items(), ("all", [*gaps["V100"], *gaps["A100"]])):
        errors = np.abs(some)
        yield (
            f"{name}: {len(some)} rows, median error {np.median(errors):.1%}, "
            f"p90 {np.quantile(errors, 0.9):.1%}, bias {np.median(some):+.1%}"
        )
    for gpu, published in LARGEST.items():
        ranks = [row for row in table() if row.gpu == gpu and row.gpus == 8]
        fitting = [row.size for row in ranks if best(row)[0]] or ["none"]
        yield f"{gpu}: largest of the published models on 8 GPUs {fitting[-1]} ({published})"


@command
def main() -> None:
    """Print the table."""
    for line in rows():
        print(line, flush=True)
