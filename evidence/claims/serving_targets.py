"""Targets of papers that a scenario's own targets (`slo`) do not express.

DeepSpeed-FastGen: a prompt takes less than its tokens / 512 s, and the moving average of token gaps
stays below the target (DeepSpeedExamples, benchmarks/inference/mii/src/plot_effective_throughput.py).
Splitwise: percentiles of slowdowns against the same request alone on a DGX A100 (arXiv 2311.18677, table VI).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.serving.result import ServingResult
from simulator.serving.steps.step_times import StepTimes

PROMPT_RATE = 512.0
"""Prompt tokens a second that a first token may take."""
SPAN = 16
"""Of the moving average: its weight of the last gap is 2 / (span + 1), as in pandas."""
SLOWDOWNS = {"ttft": (2.0, 3.0, 6.0), "tpot": (1.25, 1.5, 5.0), "e2e": (1.25, 1.5, 5.0)}
"""Most slowdown at p50, p90 and p99."""
SHARES = (0.5, 0.9, 0.99)

Columns = dict[str, Any]


def token_times(run: ServingResult) -> np.ndarray:
    """Ends of all steps with decodes of a traced run of one replica, s; steps of a stretch lie evenly."""
    steps = [slice_ for slice_ in run.fleet.members[0].meter.slices if slice_.decodes]
    counts = np.array([slice_.steps for slice_ in steps])
    starts = np.array([slice_.start_s for slice_ in steps])
    seconds = np.array([slice_.seconds for slice_ in steps])
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    return np.repeat(starts, counts) + np.repeat(seconds / counts, counts) * within


def moving_average(gaps: np.ndarray) -> np.ndarray:
    """Exponential moving average of gaps, weights normalised as pandas' `ewm(span).mean()`."""
    keep = 1.0 - 2.0 / (SPAN + 1)
    averages, total, weight = np.empty(len(gaps)), 0.0, 0.0
    for place, gap in enumerate(gaps.tolist()):
        total, weight = total * keep + gap, weight * keep + 1.0
        averages[place] = total / weight
    return averages


def smooth_rate(run: ServingResult, gap_s: float) -> float:
    """Requests a second of a traced run within FastGen's targets, with token gaps below ``gap_s``."""
    columns, times, met = run.records.columns(), token_times(run), 0
    names = ("arrival_s", "first_s", "last_s", "prompt")
    for arrival, first, last, prompt in zip(*(columns[name].tolist() for name in names), strict=True):
        if first - arrival > prompt / PROMPT_RATE:
            continue
        low, high = np.searchsorted(times, [first + 1e-9, last + 1e-9])
        gaps = np.diff(np.concatenate([[first], times[low:high]]))
        met += not len(gaps) or bool((moving_average(gaps) < gap_s).all())
    return run.metrics.request_rate * met / len(columns["prompt"])


def alone(steps: StepTimes, columns: Columns) -> dict[str, np.ndarray]:
    """TTFT, TPOT and e2e of requests that run alone, s."""
    prompts, outputs = columns["prompt"].tolist(), columns["output"].tolist()
    first = np.array([steps.step(((prompt, 0),), 0, 0) for prompt in prompts])
    token = np.array([steps.step((), 1, p + o // 2) for p, o in zip(prompts, outputs, strict=True)])
    return {"ttft": first, "tpot": token, "e2e": first + token * (columns["output"] - 1)}


def slowed_too_much(run: ServingResult, steps: StepTimes) -> list[str]:
    """Which of Splitwise's targets a run misses, e.g. ``["ttft p90 x3.4"]``.

    Args:
        run: the run.
        steps: of the machine that a request alone is timed on.
    """
    columns = {name: values[len(run.records) // 10 :] for name, values in run.records.columns().items()}
    reference, missed = alone(steps, columns), []
    ttft, e2e = columns["first_s"] - columns["arrival_s"], columns["last_s"] - columns["arrival_s"]
    several = columns["output"] > 1
    tpot = (e2e - ttft)[several] / (columns["output"][several] - 1)
    slowdowns = {"ttft": ttft / reference["ttft"], "tpot": tpot / reference["tpot"][several]}
    slowdowns["e2e"] = e2e / reference["e2e"]
    for name, limits in SLOWDOWNS.items():
        for share, limit, value in zip(SHARES, limits, np.quantile(slowdowns[name], SHARES), strict=True):
            if value > limit:
                missed.append(f"{name} p{share * 100:.0f} x{value:.2f}")
    return missed
