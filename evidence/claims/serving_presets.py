"""Goodput of equal hardware under presets of vLLM, SGLang and TensorRT-LLM, 12 models.

    python -m benchmarks.serving_presets [--only NAME] [--presets vllm-0.19,sglang-0.5.9,tensorrt-llm-1.0]

One GPU type, one load and the targets of chat; the best deployment of each preset in the model's checkpoint,
without speculation. A pair of presets more than three times apart is an exception that needs measured rows of
both engines on that class; the last column shows the rows that each preset was fitted on.
"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Any

import meshwright as mw
from core.errors import MeshwrightError
from evidence.command import command

PRESETS = ("vllm", "sglang", "tensorrt-llm")
MOST = 3.0
ASK = {"cluster": "dgx-h200", "isl": 1024, "osl": 512, "ttft": 2.0, "tpot": 0.05, "split": False, "top": 1}
MODELS = {
    "llama3.1-8b": 1,
    "qwen3-32b": 2,
    "Qwen/Qwen3-32B-FP8": 1,
    "llama3.1-70b": 4,
    "nvidia/Llama-3.3-70B-Instruct-FP8": 2,
    "mixtral-8x7b": 2,
    "qwen3-30b-a3b": 1,
    "qwen3-235b-a22b": 8,
    "gpt-oss-120b": 1,
    "minimax-m2": 4,
    "deepseek-v3": 8,
    "glm-4.5": 8,
}
"""Models and GPUs."""


def carried(model: str, gpus: int, engine: str) -> dict[str, Any]:
    """Goodput of the best deployment, its description, and the origin of the preset's constants."""
    try:
        answer = mw.deploy(model=model, gpus=gpus, engine=engine, fix={"speculation": "none"}, **ASK)
    except MeshwrightError as error:
        return {"goodput": 0.0, "told": str(error)[:60], "rows": ""}
    if not answer.search.plans:
        return {"goodput": 0.0, "told": "misses the targets", "rows": ""}
    price = answer.best.groups[0].shape.table.price
    rows = "assumed" if price.assumed else f"{price.times.rows or 0} rows"
    return {"goodput": answer.best.goodput, "told": answer.best.describe(), "rows": rows}


@command
def main(
    *,
    only: Annotated[str, "models whose name has this"] = "",
    presets: Annotated[str, "presets, or families for their newest"] = ",".join(PRESETS),
) -> None:
    """Print a line a model and preset, and the pairs too far apart."""
    engines = presets.split(",")
    apart = []
    gpus_of = {name: gpus for name, gpus in MODELS.items() if only in name}
    for model, gpus in gpus_of.items():
        carried_by = {engine: carried(model, gpus, engine) for engine in engines}
        rates = [figures["goodput"] for figures in carried_by.values()]
        worst = max(rates) / min(rates) if min(rates) else float("inf")
        print(f"{model} on {gpus}: largest over smallest {worst:.2f}", flush=True)
        for engine, figures in carried_by.items():
            print(f"    {engine:16} {figures['goodput']:8.3g}/s  {figures['told']} ({figures['rows']})")
        for first, other in combinations(engines, 2):
            low, high = sorted((carried_by[first]["goodput"], carried_by[other]["goodput"]))
            if high > MOST * low:
                apart.append(f"{model}: {first} and {other}, {high / low if low else float('inf'):.1f}")
    print(f"{len(gpus_of)} models; pairs over {MOST:g}x: {len(apart)}")
    for line in apart:
        print(f"    {line}")
