"""Speed of the search of serving plans: ``python -m benchmarks.serving_search [--repeats 3]``.

Prints for questions of growing size, on one core: candidates (every shape, role, count and engine limit),
CPU seconds to price the shapes' iteration tables and to score the candidates, and candidates a CPU second of
both. Imports and catalogues are read before. The smallest CPU time of the repeats counts.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from meshwright.questions.serving import serving_question
from planner.serving.scores import scores
from planner.serving.search import search_serving
from planner.serving.shapes import shapes

GIVEN = {"isl": 2048, "osl": 256, "rate": 12.0, "ttft": 1.0, "tpot": 0.05}
NONE = {"share": None, "engine": None, "objective": None}
QUESTIONS = (
    ("llama3.1-70b", "dgx-h100", 16, {}),
    ("llama3.1-70b", "dgx-h100", 64, {"weights": "bf16,fp8"}),
    ("gpt-oss-120b", "dgx-h100", 64, {}),
    ("llama3.1-8b", "dgx-h100", 128, {"weights": "bf16,fp8", "kv": "fp8"}),
    ("llama3.1-8b", "dgx-h100", 512, {}),
)


def main() -> None:
    """Print a line a question."""
    parser = argparse.ArgumentParser(description="Speed of the search of serving plans.")
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for model, cluster, gpus, fix in QUESTIONS:
        given = {**NONE, **GIVEN, "model": model, "cluster": cluster, "gpus": gpus}
        question = serving_question(None, given, fix, {})
        found = search_serving(question, top=1)
        priced, scored, count = [], [], 0
        for _ in range(repeats):
            start = time.process_time()
            kept = list(shapes(question, Counter()))
            middle = time.process_time()
            scores(question, kept)
            count = len(kept)
            priced.append(middle - start)
            scored.append(time.process_time() - middle)
        seconds = min(priced) + min(scored)
        words = ", ".join(f"{name} {value}" for name, value in fix.items())
        print(
            f"{model} on {gpus} GPUs{', ' + words if words else ''}: {found.candidates:,} candidates, "
            f"{count} shapes priced in {min(priced):.2f} s, scored in {min(scored):.2f} s: "
            f"{found.candidates / seconds:,.0f} candidates/s, {found.candidates / min(scored):,.0f} scored/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
