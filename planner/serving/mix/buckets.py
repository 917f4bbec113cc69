"""Requests of a workload in buckets of prompt and output lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.serving.request_sample import Sample
from simulator.lengths.fixed import FixedLength
from simulator.serving.workload import Serving
from simulator.serving.workload.arrivals.poisson import Poisson


@dataclass(frozen=True)
class Bucket:
    """Requests whose prompt lengths lie between two powers of two, and whose output lengths do.

    Attributes:
        prompt, output: mean tokens of its requests.
        rate: requests a second.
    """

    prompt: float
    output: float
    rate: float

    def workload(self, full_workload: Serving) -> Serving:
        """A workload of this bucket alone, with the targets of the whole."""
        return full_workload.model_copy(
            update={
                "arrivals": Poisson(rate=self.rate),
                "input": FixedLength(tokens=max(round(self.prompt), 1)),
                "output": FixedLength(tokens=max(round(self.output), 1)),
                "trace": None,
                "prefix": None,
            }
        )


def buckets(drawn: Sample, rate: float) -> list[Bucket]:
    """Sort requests into buckets, shortest prompts first.

    Args:
        drawn: the requests.
        rate: total rate, requests a second.
    """
    pairs = np.stack([drawn.prompts, drawn.outputs])
    ranges = np.floor(np.log2(np.maximum(pairs, 1.0)))
    cells, member = np.unique(ranges, axis=1, return_inverse=True)
    counts = np.bincount(member.ravel())
    means = [np.bincount(member.ravel(), weights=tokens) / counts for tokens in pairs]
    return [
        Bucket(float(means[0][index]), float(means[1][index]), rate * float(counts[index]) / pairs.shape[1])
        for index in range(cells.shape[1])
    ]
