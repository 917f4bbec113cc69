"""Encoder pools that SGLang measured beside predictions.

    python -m evidence.accuracy.encoder_pools

Rows are in `encoder_pools.yaml` with their source. A prediction knows devices, images, lengths and
clients; of the way of embeddings it knows the links only: rows of one load share a prediction.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from core.parsing import read_mapping
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

FACTS = Path(__file__).with_suffix(".yaml")


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
            "engine": facts["engine"],
            "pools": [
                {"role": "encoder", "replicas": row["encoders"]},
                {"role": "mixed", "options": {"max_sequences": row["clients"]}},
            ],
        },
    }
    metrics = serve(make_serving(data, str(FACTS), FACTS.parent)).metrics
    first, token = (metrics.latencies[name].p50 for name in ("ttft", "tpot"))  # type: ignore[union-attr]
    return metrics.request_rate, first, token


def main() -> None:
    facts = read_mapping(FACTS)
    errors = {"requests a second": [], "median TTFT": [], "median TPOT": []}
    print(
        f"{'encoders':>8} {'clients':>7}  {'backend':<10} {'requests/s: main, new, predicted':<34} "
        "TTFT, s           TPOT, ms"
    )
    for row in facts["rows"]:
        rate, ttft, tpot = predicted(facts, row)
        errors["requests a second"] += [rate / measured - 1.0 for measured in row["rate"]]
        errors["median TTFT"] += [ttft / measured - 1.0 for measured in row["ttft_s"]]
        errors["median TPOT"] += [1e3 * tpot / measured - 1.0 for measured in row["tpot_ms"]]
        print(
            f"{row['encoders']:>8} {row['clients']:>7}  {row['backend']:<10} "
            f"{row['rate'][0]:.3f}  {row['rate'][1]:.3f}  {rate:<20.3f} "
            f"{row['ttft_s'][0]:.2f}  {row['ttft_s'][1]:.2f}  {ttft:.2f}   "
            f"{row['tpot_ms'][0]:.2f}  {row['tpot_ms'][1]:.2f}  {1e3 * tpot:.2f}"
        )
    for name, values in errors.items():
        sizes = 100 * np.abs(values)
        figures = np.median(sizes), np.percentile(sizes, 90), 100 * np.mean(values)
        print(f"{name:<20} {len(values)} cells: {figures[0]:.1f} / {figures[1]:.1f} / {figures[2]:+.1f} %")


if __name__ == "__main__":
    main()
