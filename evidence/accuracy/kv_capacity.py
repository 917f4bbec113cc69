"""KV capacities of servers beside those that engines print at their start.

    python -m benchmarks.kv_capacity

``printed_kv.csv`` holds printed capacities with version, device, degrees and flags; ``SOURCES`` names them.
The constants of memory (``library_bytes``, ``rank_bytes``, ``sampler_bytes`` of the engine presets) were
derived from the rows of `FITTED`, so the other sources are left out of the fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from evidence.accuracy.errors import Errors
from evidence.command import command
from hwmodels.cluster import clusters
from hwmodels.usual_clusters import USUAL
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.memory import memory
from simulator.serving.steps.price import StepPrice

TABLE = Path(__file__).with_name("printed_kv.csv")
FITTED = "vllm-memory-estimator", "vllm-13061"
SOURCES = {
    "vllm-memory-estimator": "github.com/ashishkamra/vllm-memory-estimator test_data/validation_db.json "
    "@8b0e21d1: logs of Red Hat's benchmarks, 2025-12 to 2026-05, --gpu-memory-utilization 0.92",
    "vllm-21348": "github.com/vllm-project/vllm/issues/21348",
    "vllm-21429": "github.com/vllm-project/vllm pull 21429: four H200 at 0.5, by part",
    "recipes-12": "github.com/vllm-project/recipes issue 12",
    "minimax-service": "service.log of MiniMax-M2.5 on four H100, in a public repository",
    "minimax-notes": "notes on MiniMax-M2.5 on four RTX PRO 6000, read in a public repository",
    "server-sim": "docs/example-runs/qwen2.5-14b-h100 of server-sim: vLLM 0.21.0's start",
    "vllm-27508": "github.com/vllm-project/vllm/issues/27508",
    "vllm-23278": "github.com/vllm-project/vllm/issues/23278",
    "vllm-docs-l4": "troubleshooting page with a log of vLLM 0 on 22.07 GiB, read in a public repository",
    "inference-book": "notes on AI engineering, example 4-3: log of vLLM 0 on 79.14 GiB",
    "vllm-13061": "github.com/vllm-project/vllm/issues/13061",
    "trtllm-memory": "TensorRT-LLM docs/source/reference/memory.md: log with 79.10 GiB",
    "trtllm-1400": "github.com/NVIDIA/TensorRT-LLM/issues/1400",
    "aisimulate-263": "github.com/ai-dynamo/aisimulate pull 263: about 509k tokens observed",
    "vllm-12569": "github.com/vllm-project/vllm pull 12569",
}


class Capacity(NamedTuple):
    """A printed capacity and the predicted one, GiB a device."""

    source: str
    words: str
    printed: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over printed, less 1; against the memory's sign where nothing is left for KV."""
        return (self.predicted - self.printed) / abs(self.printed)


def read() -> list[Capacity]:
    """The rows of the table with their predictions."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [_capacity(row) for row in csv.DictReader(file)]


def _capacity(row: Mapping[str, str]) -> Capacity:
    engine, cluster = engines.get(row["engine"]), clusters.get(USUAL[row["device"]])
    data = int(row["data"])
    degrees = {"tensor": int(row["tensor"]), "pipeline": int(row["pipeline"]), "data": data, "expert": data}
    pool = Pool.model_validate({**degrees, "weights": row["weights"], "kv": row["kv"] or None})
    budget = int(row["budget"] or engine.token_budget(cluster.device))
    sequences = int(row["sequences"] or engine.sequence_limit(cluster.device))
    price = StepPrice(models.get(row["model"]), cluster, pool, engine)
    capacity = memory(price, budget, sequences, float(row["share"]))
    gibibytes = float(row["kv_gib"] or 0) or int(row["kv_tokens"]) * capacity.kv_token / 2**30
    words = f"{row['engine']} {row['model']} {row['device']} TP{row['tensor']} DP{data} {row['weights']}"
    return Capacity(row["source"], words, gibibytes, capacity.kv_bytes / 2**30)


@command
def main() -> None:
    """Print each row, and the errors of the sources that gave the constants and of the others."""
    rows = read()
    for row in rows:
        line = f"{row.source:22} {row.words:64} {row.predicted:7.2f} of {row.printed:7.2f} GiB"
        print(f"{line} {100 * row.error:+6.1f} %")
    groups = {"all": rows, "left out": [row for row in rows if row.source not in FITTED]}
    errors = Errors()
    for name, members in groups.items():
        optimistic = max(row.error for row in members)
        sources = len({row.source for row in members})
        for row in members:
            errors.count(
                row.error, f"{name}, of {sources} sources, most optimistic {100 * optimistic:+.1f} %"
            )
    print("\n".join(errors.lines()))
