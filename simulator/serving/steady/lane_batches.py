"""Uneven micro batches of a pipeline, over arrays.

A micro batch plans when it leaves the pipeline, and takes the prompts that came since the one ahead left. The
longest one leaves last of a round, so more prompts come to it than it has of the sequences: it stays long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.prompts_first import LaneSteps
from simulator.serving.steady.steady_cases import Cases
from simulator.serving.steady.waits import STEADIEST

Array = NDArray[np.float64]


def longer_batch(
    cases: Cases,
    around: Array,
    beside: Array,
    through: Array,
    seconds: tuple[Array, Array],
    lanes: LaneSteps | None,
) -> tuple[Array, Array]:
    """Variance of the sequences of a micro batch, and those of the longest one beyond the mean.

    With turns of a + b n seconds beside n sequences, x sequences more bring a micro batch the arrivals of b x
    seconds more a round, and x over the decodes of a request leave it: of a deviation 1 - rate b decodes
    decays.

    Args:
        cases: the loads.
        around: mean sequences of a micro batch.
        beside: the same beside a request.
        through: requests a second of a micro batch.
        seconds: of a decode step of one sequence, and what a sequence adds to all decode steps of a request.
        lanes: turns of the last iteration where prompts come first.
    """
    lasting = np.maximum(1.0 - through * cases.stages * seconds[1], STEADIEST)
    varied = np.where(cases.stages == 1.0, 0.0, beside) / lasting
    longer = cases.longest_of * np.sqrt(varied)
    if lanes is None:
        return varied, longer
    return varied, np.where(cases.laned, _prompts_first(cases, around, through, seconds, lanes), longer)


def _prompts_first(
    cases: Cases, mean: Array, through: Array, seconds: tuple[Array, Array], lanes: LaneSteps
) -> Array:
    """Sequences of the longest micro batch beyond the mean one, where prompts come before decodes.

    The longest one gives more of its rounds to prompts as well: of a deviation 1 - rate b decodes / (1 -
    share of prompts) decays. Where that is below zero, the longest one takes all that the others do not: each
    of these leaves its stages' part of a turn behind the one ahead, and takes what came in it.

    Args:
        cases, through, seconds, lanes: those of `longer_batch`.
        mean: sequences of a micro batch.
    """
    alone, growth = seconds
    stages = cases.stages
    lasting = np.maximum(1.0 - through * stages * growth / (1.0 - lanes.share), STEADIEST)
    # Prompts come by families: of exponential ones a prompt is in one of twice the mean.
    varied = (2.0 * lanes.family - 1.0) * mean / lasting
    left = np.maximum(1.0 - through * (lanes.prompt_s + growth), STEADIEST)
    shortest = np.minimum(through * (alone * cases.gaps - growth) / left, mean)
    farthest = np.minimum((stages - 1.0) * (mean - shortest), cases.slots - mean)
    return np.minimum(cases.longest_of * np.sqrt(varied), np.maximum(farthest, 0.0))
