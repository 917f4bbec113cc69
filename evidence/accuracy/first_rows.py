"""First rows of training questions: chance to fit and measured runs, beside the rows within their band.

    python -m benchmarks.first_rows [--questions 24]

Counts first rows that fit with less than 95 %, or rest on a mechanism without a measured run, although
another row shown is close enough and does not.
"""

from __future__ import annotations

import argparse
from itertools import islice

import numpy as np

import meshwright as mw
from core.errors import MeshwrightError
from planner.training.confidence import within_band
from planner.training.shortlist import SAFE
from simulator.uncertainty import chance_to_fit

QUESTIONS = (
    ("llama3.1-8b", "dgx-h100", 8, 64, "bf16"),
    ("llama3.1-8b", "dgx-h100", 64, 128, "bf16"),
    ("llama3.1-8b", "dgx-a100-80gb", 64, 128, "bf16"),
    ("llama3.1-8b", "dgx-b200", 32, 128, "fp8"),
    ("llama3.1-70b", "dgx-h100", 64, 128, "bf16"),
    ("llama3.1-70b", "dgx-h100", 256, 512, "bf16"),
    ("llama3.1-70b", "dgx-h100", 256, 512, "fp8"),
    ("llama3.1-70b", "dgx-b200", 64, 256, "bf16"),
    ("llama3.1-70b", "gb200-nvl72", 72, 288, "fp8"),
    ("llama3.1-405b", "dgx-h100", 1024, 512, "bf16"),
    ("llama3.1-405b", "dgx-b200", 512, 512, "fp8"),
    ("gpt3-175b", "dgx-a100-80gb", 1024, 1536, "bf16"),
    ("gpt3-175b", "dgx-h100", 512, 1024, "bf16"),
    ("mixtral-8x7b", "dgx-h100", 64, 256, "bf16"),
    ("mixtral-8x22b", "dgx-h100", 128, 256, "bf16"),
    ("qwen3-30b-a3b", "dgx-h100", 32, 256, "bf16"),
    ("qwen3-30b-a3b", "dgx-b200", 16, 256, "bf16"),
    ("qwen3-235b-a22b", "dgx-h100", 256, 1024, "bf16"),
    ("qwen3-235b-a22b", "gb200-nvl72", 144, 1152, "bf16"),
    ("deepseek-v3", "dgx-h100", 1024, 4096, "bf16"),
    ("deepseek-v3", "gb200-nvl72", 288, 2304, "fp8"),
    ("qwen3-32b", "dgx-h100", 64, 128, "bf16"),
    ("llama2-13b", "dgx-a100-40gb", 64, 256, "bf16"),
    ("llama2-70b", "dgx-a100-80gb", 128, 256, "bf16"),
)
"""Model, cluster, GPUs, sequences of 4,096 tokens in a step, number format."""


def first_row(question):
    """The first row of a question, and what stands against it, in words.

    Raises:
        MeshwrightError: no plan fits.
    """
    model, cluster, gpus, batch, precision = question
    keys = {"model": model, "cluster": cluster, "gpus": gpus, "seq_len": 4096, "global_batch": batch}
    search = mw.plan(**keys, precision=precision, top=10)
    search.check()
    prediction, setting = search.found, search.result.setting
    fits = chance_to_fit(prediction.memory.peak, setting.cluster.device.memory_bytes, setting)
    unproven = [bool(each.unproven) for each in prediction.confidence.evidence]
    fastest = int(np.argmin(prediction.step.time))
    order = np.array([fastest, *(row for row in range(len(fits)) if row != fastest)])
    close = np.zeros(len(fits), bool)
    close[order] = within_band(setting, prediction.plans.take(order))
    others = [row for row in range(1, len(fits)) if close[row]]
    words = []
    if fits[0] < SAFE and any(fits[row] >= SAFE for row in others):
        words.append("fits below 95 %")
    if unproven[0] and any(not unproven[row] and fits[row] >= SAFE for row in others):
        words.append("unmeasured")
    figures = f"fits with {100 * fits[0]:.0f} %, {prediction.confidence.evidence[0].fewest} runs"
    return f"{prediction.plans.plan(0).describe()}, {figures}", words


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=len(QUESTIONS))
    wrong, answered = [], 0
    for question in islice(QUESTIONS, parser.parse_args().questions):
        try:
            line, words = first_row(question)
        except MeshwrightError as error:
            print(*question, f"no plan: {error}", flush=True)
            continue
        answered += 1
        wrong += words
        print(*question, line, *(f"[{word}]" for word in words), flush=True)
    print(
        f"{answered} first rows: {wrong.count('fits below 95 %')} fit below 95 % beside a safe row, "
        f"{wrong.count('unmeasured')} unmeasured beside a measured one"
    )


if __name__ == "__main__":
    main()
