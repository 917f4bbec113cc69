"""Array lookups of step times under speculation, for steady states."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import InputError
from simulator.serving.question.speculation import Speculation
from simulator.serving.steps.speculation import HeadTimes
from simulator.serving.steps.step_arrays import StepCases

Array = NDArray[np.float64]


class SpeculativeCases:
    """`StepCases` whose decodes verify drafts.

    Args:
        target: step times of the targets.
        speculation: proposals, passes and acceptance.
        layers: layers of the target, of which draft heads cost a share.

    Raises:
        InputError: asynchronous drafts.
    """

    def __init__(self, target: StepCases, speculation: Speculation, layers: int) -> None:
        if speculation.asynchronous:
            raise InputError("asynchronous drafts are simulated, not searched", "speculation.asynchronous")
        self._heads = HeadTimes.of(speculation, layers)
        self._passes, self._host_s = speculation.draft_passes, speculation.host_s
        self.verified = float(speculation.queries)
        self.pace = speculation.mean()
        """Mean tokens of a step."""
        counts = np.arange(1, speculation.tokens + 2)
        square = float(speculation.shares() @ counts**2)
        self.overshoot = 0.5 * (square - self.pace) / self.pace
        """Mean tokens of the last step beyond the last one asked for (renewal theory)."""
        self.draws = max(square - self.pace**2, 0.0) ** 0.5
        """Standard deviation of the tokens of a step."""
        self._of(target)

    def _of(self, target: StepCases) -> None:
        self._target = target
        self.engine, self.stages, self.ranks = target.engine, target.stages, target.ranks
        self.idle_watts, self.fixed_s = target.idle_watts, target.fixed_s
        self.window, self.windows, self.longest = target.window, target.windows, target.longest
        self.least_mixed_s = target.least_mixed_s

    def repeated(self, times: int) -> Self:
        """See `StepCases.repeated`."""
        cases = copy(self)
        cases._of(self._target.repeated(times))
        return cases

    def varying(self, shared: Array) -> Self:
        """See `StepCases.varying`."""
        cases = copy(self)
        cases._target = self._target.varying(shared)
        return cases

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of a replica's devices during steps; see `StepCases.watts`."""
        return self._target.watts(tokens, decodes, kv_tokens, seconds)

    def decodes_at(self, keys: Array, most_sequences: float) -> Callable[[Array], Array]:
        """See `StepCases.decodes_at`."""
        return lambda sequences: self.decode_seconds(sequences, keys)

    def decode_seconds(self, sequences: ArrayLike, keys: ArrayLike) -> Array:
        """Seconds of decode steps: proposals, then verification; see `StepCases.decode_seconds`."""
        seconds = self._target.decode_seconds(sequences, keys, self.verified) + self._host_s
        return seconds + self._drafts(sequences, keys) if self._passes else seconds

    def _drafts(self, sequences: ArrayLike, keys: ArrayLike) -> Array:
        """Seconds of the passes that propose tokens of a step."""
        return self._passes * self._heads.seconds(self._target.decode_seconds(sequences, keys))

    def mixed_seconds(
        self,
        queries: ArrayLike,
        before: ArrayLike,
        sequences: ArrayLike,
        keys: ArrayLike,
        chunks: ArrayLike = 1.0,
        ranks: ArrayLike | None = None,
    ) -> Array:
        """Seconds of steps with prefill chunks, which pass through target and draft."""
        batch = (before, sequences, keys, chunks, ranks)
        seconds = self._target.mixed_seconds(queries, *batch, self.verified)
        if not self._passes:
            return seconds + np.where(np.asarray(sequences) >= 0.5, self._host_s, 0.0)
        some = np.asarray(sequences, dtype=np.float64) >= 0.5
        drafts = self._drafts(np.maximum(sequences, 1.0), keys)
        alone = np.zeros_like(np.asarray(sequences, dtype=np.float64))
        prompts = self._target.mixed_seconds(queries, before, alone, keys, chunks, ranks)
        return seconds + np.where(some, self._host_s + drafts, 0.0) + self._heads.seconds(prompts)

    def others_seconds(
        self, queries: ArrayLike, before: ArrayLike, sequences: ArrayLike, keys: ArrayLike
    ) -> Array:
        """Seconds that decodes of other ranks add to a step with a chunk; see `StepCases.others_seconds`."""
        seconds = self._target.others_seconds(queries, before, sequences, keys, self.verified)
        return seconds + self._drafts(np.maximum(sequences, 1.0), keys) if self._passes else seconds
