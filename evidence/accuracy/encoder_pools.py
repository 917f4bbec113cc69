"""Encoder pools that SGLang measured beside predictions.

    python -m benchmarks.encoder_pools

Rows are in `encoder_pools.yaml` with their source. A prediction knows devices, images, lengths, clients and
whether embeddings go over the links alone (RDMA) or through host memory, as by the tokenizer or the
scheduler; the socket between both processes is not counted.
"""

from __future__ import annotations

from pathlib import Path

from core.parsing import read_mapping
from evidence.accuracy.errors import Figures, compared
from evidence.command import command
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

FACTS = Path(__file__).with_suffix(".yaml")
FIGURES, COLUMNS = ("requests a second", "median TTFT", "median TPOT"), ("rate", "ttft_s", "tpot_ms")


def engine_of(facts, row):
    """The engine; RDMA spares it the copies of embeddings."""
    name = facts["engine"]
    spared = {"value": 0.0, "kind": "read", "source": facts["source"]}
    if row["backend"] != "mooncake":
        return name
    return {
        "name": "rdma",
        "engine": "sglang",
        "version": "rdma",
        "based_on": name,
        "embedding_out_s": spared,
        "embedding_in_s": spared,
    }


def predicted(facts, row):
    """Requests a second, and the medians of the time to first token and per output token, s."""
    data = {
        "model": "qwen3-vl-8b",
        "cluster": facts["cluster"],
        "workload": {
            "kind": "serving",
            "requests": row["requests"],
            "arrivals": {"kind": "closed", "concurrency": row["clients"]},
            "images": "4x1920x1080",
            "input": 1024,
            "output": 64,
        },
        "deployment": {
            "engine": engine_of(facts, row),
            "pools": [
                {"role": "encoder", "replicas": row["encoders"]},
                {"role": "mixed", "options": {"max_sequences": row["clients"]}},
            ],
        },
    }
    metrics = serve(make_serving(data, str(FACTS), FACTS.parent)).metrics
    first, token = (metrics.latencies[name].p50 for name in ("ttft", "tpot"))  # type: ignore[union-attr]
    return metrics.request_rate, first, token


def row_figures(facts, row) -> Figures:
    """Print a row; its figures."""
    rate, ttft, tpot = predicted(facts, row)
    print(
        f"{row['encoders']:>8} {row['clients']:>7}  {row['backend']:<10} "
        f"{row['rate'][0]:.3f}  {row['rate'][1]:.3f}  {rate:<20.3f} "
        f"{row['ttft_s'][0]:.2f}  {row['ttft_s'][1]:.2f}  {ttft:.2f}   "
        f"{row['tpot_ms'][0]:.2f}  {row['tpot_ms'][1]:.2f}  {1e3 * tpot:.2f}"
    )
    way = "RDMA" if row["backend"] == "mooncake" else "the host"
    for name, figure, key in zip(FIGURES, (rate, ttft, 1e3 * tpot), COLUMNS, strict=True):
        for measured in row[key]:
            yield name, figure, measured
            yield f"{name}, by {way}", figure, measured


@command
def main() -> None:
    facts = read_mapping(FACTS)
    print(
        f"{'encoders':>8} {'clients':>7}  {'backend':<10} {'requests/s: main, new, predicted':<34} "
        "TTFT, s           TPOT, ms"
    )
    print("\n".join(compared(facts["rows"], lambda row: row_figures(facts, row)).lines("cells, %")))
