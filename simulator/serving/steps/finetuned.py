"""Step times of a replica whose decode steps carry fine-tuning tokens up to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.errors import InfeasibleError, InputError
from simulator.models import Model
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, ReplicaCosts, StepTimes, Stretch

BACKWARD = 1.0
"""Products of the backward pass over those of the forward pass: base weights are frozen, so gradients of
inputs alone; adapters' own products are left out."""
KV_GRAIN, PROMPT_GRAIN, SLACK_GRAIN_S = 4096, 16, 2e-4
"""KV tokens, prompt tokens and seconds of slack within which steps count as equal."""
ROUNDING_S = 1e-9
"""Slack that is rounding."""


class SlackSteps:
    """`StepTimes` in which a step with decodes is filled with fine-tuning tokens, up to the target.

    The forward pass of such tokens shares the step's products with decodes, so weights are read once. The
    backward pass runs layer by layer over several steps (FlexLLM), at the price of a token in a whole
    sequence. A step ends before the target where the engine's budget of query tokens is full. Steps longer
    than the target carry no such tokens.

    Args:
        target: step times without fine-tuning.
        tpot_s: the target.
        length: tokens of a training sequence.
        budget: most query tokens of a step: of decodes, prompts and fine-tuning.

    Source: Miao et al., FlexLLM, arXiv 2402.18789.
    """

    def __init__(self, target: StepTimes, tpot_s: float, length: int, budget: int) -> None:
        self.target, self.tpot_s, self.stages = target, tpot_s, target.stages
        tokens = min(length, budget)
        self.token_s = (1.0 + BACKWARD) * target.step(((tokens, 0),), 0, 0) / tokens
        """Seconds of a fine-tuning token on devices that do nothing else."""
        self.backward_s = self.token_s * BACKWARD / (1.0 + BACKWARD)
        self.budget = budget
        self._known: dict[tuple[int, int, int, int], float] = {}
        self._full: dict[tuple[int, int], float] = {}

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        seconds = self.target.step(prefills, decodes, kv_tokens, queries)
        if not decodes or seconds >= self.tpot_s:
            return seconds
        prompt = sum(tokens for tokens, _ in prefills)
        return min(seconds + self.full_s(decodes, prompt), self.tpot_s)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; up to the step that is cut by the target, or that alone is longer."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        if first_s >= self.tpot_s:
            return first_s, growth_s, steps
        filled_s = first_s + self.full_s(decodes, 0)
        if filled_s >= self.tpot_s:
            return self.tpot_s, 0.0, self._until(first_s, growth_s, steps)
        return filled_s, growth_s, self._until(filled_s, growth_s, steps)

    def _until(self, first_s: float, growth_s: float, steps: int) -> int:
        """Steps of a stretch that end before the target."""
        return min(steps, max(int((self.tpot_s - first_s) / growth_s), 1)) if growth_s > 0 else steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`; data-parallel ranks are refused beside fine-tuning."""
        return self.target.lockstep(ranks, queries)

    def full_s(self, decodes: int, prompt: int) -> float:
        """Seconds that fine-tuning tokens add to a step of decodes and a prompt, the budget full."""
        key = decodes, prompt
        if key not in self._full:
            self._full[key] = self._more_s(max(self.budget - decodes - prompt, 0), decodes, 0, prompt)
        return self._full[key]

    def _more_s(self, tuned: int, decodes: int, kv_tokens: int, prompt: int) -> float:
        """Seconds that so many fine-tuning tokens add to a step, their share of a backward pass included."""
        chunks = ((prompt, 0),) if prompt else ()
        alone = self.target.step(chunks, decodes, kv_tokens)
        both = self.target.step((*chunks, (tuned, 0)), decodes, kv_tokens) if tuned else alone
        return both - alone + tuned * self.backward_s

    def tokens(self, decodes: int, kv_tokens: int, prompt: int, slack_s: float) -> float:
        """Fine-tuning tokens of a step of decodes and a prompt that may last ``slack_s`` longer."""
        prompt -= prompt % PROMPT_GRAIN
        key = decodes, kv_tokens // KV_GRAIN, prompt, round(slack_s / SLACK_GRAIN_S)
        if key not in self._known:
            low, high = 0, max(self.budget - decodes - prompt, 0)
            while low < high:
                middle = (low + high + 1) // 2
                fits = self._more_s(middle, decodes, kv_tokens, prompt) <= slack_s + ROUNDING_S
                low, high = (middle, high) if fits else (low, middle - 1)
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
                total += steps * self.tokens(batch, tokens, chunk, max(passed / steps - alone, 0.0))
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
    if pool.pipeline > 1 or pool.data > 1:
        raise InputError("fine-tuning beside decodes excludes pipeline and data ranks", where)
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
