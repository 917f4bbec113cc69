"""Speed of the search of serving plans: ``python -m benchmarks.serving_search [--repeats 3]``.

Prints for questions of growing size, on one core: candidates (every shape, role, count and engine limit),
CPU seconds to price the shapes' iteration tables and to score the candidates, candidates a CPU second of
both, and the CPU seconds of the look at the first three on the event engine, which the others do not hold.
The first question is README's. Imports and catalogues are read before. The smallest CPU time of the repeats
counts.
"""

from __future__ import annotations

import time
from collections import Counter

from evidence.command import command
from meshwright.questions.serving import serving_question
from planner.serving.engine_check import check
from planner.serving.scored_deployments import scores
from planner.serving.search import search_serving
from planner.serving.shapes import shapes

GIVEN = {"isl": 2048, "osl": 256, "rate": 12.0, "ttft": 1.0, "tpot": 0.05}
NONE = {"share": None, "engine": None, "objective": None}
README = {"isl": 1000, "osl": 200, "rate": 20.0, "ttft": 0.5, "tpot": 0.03}
QUESTIONS = (
    ("llama3.1-8b", "dgx-h100", 8, {}, README),
    ("llama3.1-70b", "dgx-h100", 16, {}, GIVEN),
    ("llama3.1-70b", "dgx-h100", 64, {"weights": "bf16,fp8"}, GIVEN),
    ("gpt-oss-120b", "dgx-h100", 64, {}, GIVEN),
    ("llama3.1-8b", "dgx-h100", 128, {"weights": "bf16,fp8", "kv": "fp8"}, GIVEN),
    ("llama3.1-8b", "dgx-h100", 512, {}, GIVEN),
)


@command
def main(*, repeats: int = 3) -> None:
    """Print a line a question."""
    for model, cluster, gpus, fix, load in QUESTIONS:
        keys = {**NONE, **load, "model": model, "cluster": cluster, "gpus": gpus}
        question = serving_question(None, keys, fix, {})
        search = search_serving(question)
        start = time.process_time()
        ran = len(check(search).runs)
        looked = time.process_time() - start
        price_s, score_s, count = [], [], 0
        for _ in range(repeats):
            start = time.process_time()
            layouts = list(shapes(question, Counter()))
            middle = time.process_time()
            scores(question, layouts)
            count = len(layouts)
            price_s.append(middle - start)
            score_s.append(time.process_time() - middle)
        seconds = min(price_s) + min(score_s)
        words = ", ".join(f"{name} {value}" for name, value in fix.items())
        print(
            f"{model} on {gpus} GPUs{', ' + words if words else ''}: {search.candidates:,} candidates, "
            f"{count} shapes priced in {min(price_s):.2f} s, scored in {min(score_s):.2f} s: "
            f"{search.candidates / seconds:,.0f} candidates/s, "
            f"{search.candidates / min(score_s):,.0f} scored/s"
            f"; the event engine runs {ran} in {looked:.2f} s more",
            flush=True,
        )
