"""What the tables of best plans show, over 60 questions.

``python -m benchmarks.short_lists``: 6 models x 5 clusters x 2 sizes with defaults. Counts the tables in
which a family (no pipeline, ZeRO-3, least memory, ...) has two rows, the rows that fill more than 90 % of the
device, and the tables in which two families share a parallel layout. Exits 1 where one of the first two is
not 0.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import product

import meshwright as mw
from planner.families import layouts
from planner.shortlist import OTHER

MODELS = ("llama3.1-8b", "llama3.1-70b", "gpt3-175b", "qwen3-32b", "mixtral-8x7b", "llama2-7b")
CLUSTERS = ("dgx-h100", "dgx-a100-80gb", "mi300x-8", "gb200-nvl72", "frontier")
SIZES = (128, 512)
FULL = 0.9


def main() -> int:
    counts = Counter[str]()
    for model, cluster, gpus in product(MODELS, CLUSTERS, SIZES):
        name = f"{model} on {gpus} of {cluster}"
        found = mw.plan(model=model, cluster=cluster, gpus=gpus, seq_len=4096, global_batch=1024)
        counts["questions"] += 1
        result = found.result
        if not len(result.plans):
            counts["without a plan"] += 1
            print(f"{name}: nothing fits")
            continue
        labels = [label for row in result.rows for label in row.families if label != OTHER]
        shapes = layouts(result.plans).tolist()
        if len(set(labels)) < len(labels):
            counts["tables with two rows of one family"] += 1
            print(f"{name}: {[row.families for row in result.rows]}")
        counts["tables with families of one layout"] += len(set(shapes)) < len(shapes)
        share = result.memory.peak / result.setting.cluster.device.memory_bytes
        counts["rows"] += len(share)
        counts["rows above 90 % of the device"] += int((share > FULL).sum())
        counts["rank 1 above 90 % of the device"] += int(share[0] > FULL)
    wrong = ("tables with two rows of one family", "rows above 90 % of the device")
    for name in dict.fromkeys(("questions", "without a plan", "rows", *wrong, *counts)):
        print(f"{name:38} {counts[name]}")
    return int(any(counts[name] for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
