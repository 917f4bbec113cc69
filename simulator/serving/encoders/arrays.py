"""Encoder time in the array lookups of joined tables: steady states of replicas that encode pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.models.towers.pictures import Pictures
from simulator.serving.encoders.times import EncoderTimes
from simulator.serving.steps.case_mechanism import Array, CaseBatch
from simulator.serving.steps.joined import JoinedVectors

MOST_TOGETHER = 16
"""Requests of a step whose pictures are priced together; those of more cost as much each."""


class EncodingArrays:
    """The tower's time in steps with prompts, as `EncodingSteps` has it.

    A step encodes the pictures that its chunks begin: those of as many requests as its prompt tokens make
    whole prompts. A part of a request counts in proportion, which is the mean over a prompt's chunks.

    Args:
        towers: times of each table's replica.
        pictures: of each request.
        new_tokens: prompt tokens of a request that steps compute.
    """

    def __init__(self, towers: Sequence[EncoderTimes], pictures: Pictures, new_tokens: float) -> None:
        requests = range(MOST_TOGETHER + 1)
        lines = {id(times): [times.requests_s(pictures, count) for count in requests] for times in towers}
        self.seconds = JoinedVectors([np.array(lines[id(times)]) for times in towers])
        """Seconds by requests of a step."""
        self.new_tokens = new_tokens

    def on(self, which: NDArray[np.int64]) -> EncodingOfCases:
        """See `ArrayMechanism.on`."""
        index = int(which) if which.ndim == 0 else which
        return EncodingOfCases(self.seconds.at(index), self.new_tokens)


class EncodingOfCases:
    """The tower's time of an array of cases."""

    def __init__(self, seconds: Callable[[Array], Array], new_tokens: float) -> None:
        self._seconds, self._new_tokens = seconds, new_tokens

    def seconds(self, times: Callable[[Any], Array], batch: CaseBatch, cases: Any) -> Array:
        """Seconds of steps with the tower before the language model; see `CaseMechanism.seconds`."""
        requests = np.asarray(batch.queries, dtype=np.float64) / self._new_tokens
        together = np.minimum(requests, MOST_TOGETHER)
        more = requests / np.maximum(together, 1e-12)
        return times(cases) + self._seconds(together) * more
