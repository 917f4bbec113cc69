"""Speculation with a draft model: cost of a step, and its tokens.

The draft model proposes ``tokens`` tokens, one after the other; the target verifies all of them and adds one
token in a single step (Leviathan et al., arXiv 2211.17192). Each proposal is accepted with probability
``acceptance`` if all earlier proposals were, so a step yields 1 to ``tokens`` + 1 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.serving.question.speculation import Speculation
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, StepTimes, Stretch


class Drafts:
    """Draws of the number of steps of a sequence."""

    def __init__(self, speculation: Speculation, seed: list[int]) -> None:
        self.pace = speculation.mean()
        """Mean tokens of a step."""
        self._shares = speculation.shares()
        self._random = np.random.default_rng(seed)

    def steps(self, tokens: int) -> int:
        """Steps that yield the given number of tokens."""
        draws = self._random.choice(len(self._shares), tokens, p=self._shares) + 1
        return int(np.searchsorted(np.cumsum(draws), tokens)) + 1


class SpeculativeSteps:
    """`StepTimes` of a target whose decodes verify a draft model's proposals."""

    def __init__(self, target: StepTimes, draft: StepTimes, speculation: Speculation) -> None:
        self.target, self.draft, self.tokens = target, draft, speculation.tokens
        self.stages = target.stages
        self._growth = speculation.mean() / (speculation.tokens + 1)

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Proposals, then verification; prompts pass through both models."""
        seconds = self.target.step(prefills, decodes, kv_tokens, self.tokens + 1)
        if decodes:
            seconds += self.tokens * self.draft.step((), decodes, kv_tokens)
        return seconds + (self.draft.step(prefills, 0, 0) if prefills else 0.0)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """As `step`, while KV grows by the mean tokens of a step."""
        verify_s, verify_growth_s, verify_steps = self.target.stretch(decodes, kv_tokens, self.tokens + 1)
        propose_s, propose_growth_s, propose_steps = self.draft.stretch(decodes, kv_tokens)
        pace = self._growth * (self.tokens + 1)
        return (
            verify_s + self.tokens * propose_s,
            verify_growth_s * self._growth + self.tokens * propose_growth_s * pace,
            max(int(min(verify_steps, propose_steps / pace)), 1),
        )

    def lockstep(self, ranks: Sequence[RankBatch]) -> float:
        """Verification and proposals of ranks that step together; verification at one token a sequence."""
        return self.target.lockstep(ranks) + self.tokens * self.draft.lockstep(ranks)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the target's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and drafting."""
        found = dict(self.target.parts(prefills, decodes, kv_tokens))
        found["drafting"] = max(self.step(prefills, decodes, kv_tokens) - sum(found.values()), 0.0)
        return found
