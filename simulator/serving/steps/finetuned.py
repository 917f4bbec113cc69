"""Step times of a replica whose decode steps carry fine-tuning tokens up to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hwmodels.errors import InfeasibleError, InputError
from simulator.models import Model
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, ReplicaCosts, StepTimes, Stretch

BACKWARD = 1.0
"""Products of the backward pass over those of the forward pass: base weights are frozen, so gradients of
inputs alone; adapters' own products are left out."""
KV_GRAIN, SLACK_GRAIN_S = 4096, 2e-4
"""KV tokens and seconds of slack within which steps count as equal."""


class SlackSteps:
    """`StepTimes` in which a step with decodes lasts until the target, filled with fine-tuning tokens.

    The forward pass of such tokens shares the step's products with decodes, so weights are read once. The
    backward pass runs layer by layer over several steps (FlexLLM), at the price of a token in a whole
    sequence. Steps longer than the target carry no such tokens.

    Args:
        target: step times without fine-tuning.
        tpot_s: the target.
        length: tokens of a training sequence.
        budget: most tokens of a pass.

    Source: Miao et al., FlexLLM, arXiv 2402.18789.
    """

    def __init__(self, target: StepTimes, tpot_s: float, length: int, budget: int) -> None:
        self.target, self.tpot_s, self.stages = target, tpot_s, target.stages
        tokens = min(length, budget)
        self.token_s = (1.0 + BACKWARD) * target.step(((tokens, 0),), 0, 0) / tokens
        """Seconds of a fine-tuning token on devices that do nothing else."""
        self.backward_s = self.token_s * BACKWARD / (1.0 + BACKWARD)
        self.budget = budget
        self._known: dict[tuple[int, int, int], float] = {}

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        seconds = self.target.step(prefills, decodes, kv_tokens, queries)
        return max(seconds, self.tpot_s) if decodes else seconds

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; up to the step from which decodes alone take longer than the target."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        if first_s >= self.tpot_s:
            return first_s, growth_s, steps
        if growth_s > 0:
            steps = min(steps, max(int((self.tpot_s - first_s) / growth_s), 1))
        return self.tpot_s, 0.0, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`."""
        seconds = self.target.lockstep(ranks, queries)
        return max(seconds, self.tpot_s) if any(batch.decodes for batch in ranks) else seconds

    def tokens(self, decodes: int, kv_tokens: int, slack_s: float) -> float:
        """Fine-tuning tokens of a step of decodes that may last ``slack_s`` longer."""
        key = decodes, kv_tokens // KV_GRAIN, round(slack_s / SLACK_GRAIN_S)
        if key not in self._known:
            alone = self.target.step((), decodes, kv_tokens)
            low, high = 0, max(self.budget - decodes, 0)
            while low < high:
                middle = (low + high + 1) // 2
                more = self.target.step(((middle, 0),), decodes, kv_tokens) - alone + middle * self.backward_s
                low, high = (middle, high) if more <= slack_s else (low, middle - 1)
            self._known[key] = float(low)
        return self._known[key]

    def tuned_tokens(
        self, seconds: Array, count: Array, decodes: Array, kv_tokens: Array, prompt: Array
    ) -> float:
        """Fine-tuning tokens of steps and stretches.

        Args:
            seconds, count: of a stretch and its steps, shape (rows,).
            decodes, kv_tokens, prompt: of its first step; prompts count as one chunk, shape (rows,).
        """
        total = 0.0
        middle = kv_tokens + 0.5 * decodes * (count - 1)
        for passed, steps, *sizes in zip(seconds, count, decodes, middle, prompt, strict=True):
            batch, tokens, chunk = map(int, sizes)
            if batch:
                alone = self.target.step(((chunk, 0),) if chunk else (), batch, tokens)
                total += steps * self.tokens(batch, tokens, max(passed / steps - alone, 0.0))
        return total

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of steps whose slack computes tokens forward and backward at the price of whole sequences."""
        sizes = zip(decodes.tolist(), kv_tokens.tolist(), strict=True)
        alone = [self.target.step((), int(batch), int(keys)) if batch else np.inf for batch, keys in sizes]
        tuned = np.maximum(seconds - np.array(alone), 0.0) / self.token_s
        return self.target.watts(tokens + (1.0 + BACKWARD) * tuned, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and fine-tuning."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {**parts, "fine-tuning": self.step(prefills, decodes, kv_tokens) - sum(parts.values())}


def with_finetuning(
    costs: ReplicaCosts, model: Model, pool: Pool, options: EngineOptions, where: str
) -> ReplicaCosts:
    """Costs of a replica that also fine-tunes; activations take KV blocks.

    Raises:
        InputError: a combination that is not modelled, or a target without slack.
        InfeasibleError: activations leave no KV block.
    """
    finetuning = pool.finetuning
    if finetuning is None:
        return costs
    if pool.speculation is not None or pool.pipeline > 1 or pool.data > 1:
        raise InputError("fine-tuning beside decodes excludes speculation, pipeline and data ranks", where)
    alone = costs.steps.step((), 1, 1)
    if alone >= finetuning.tpot:
        raise InputError(
            f"no slack: one decode step takes {alone:.3g} s alone, found a target of {finetuning.tpot:g} s",
            f"{where}.tpot",
        )
    left = costs.kv_blocks
    if not options.kv_blocks:
        block = costs.kv_token_bytes * options.block_tokens
        left -= int(finetuning.bytes(model.layers, model.hidden) / block)
    if left < 1:
        raise InfeasibleError(
            f"activations of {finetuning.length:,} training tokens leave no KV block; shorter ones help"
        )
    steps = SlackSteps(costs.steps, finetuning.tpot, finetuning.length, options.token_budget)
    return replace(costs, steps=steps, kv_blocks=left)
