"""Cost of speculative decoding: drafts and their verification in a step, and the tokens that it yields."""

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
        self._ends = np.cumsum(speculation.shares())
        self._ends /= self._ends[-1]
        self._random = np.random.default_rng(seed)

    def steps(self, tokens: int) -> int:
        """Steps that yield the given number of tokens."""
        # `Generator.choice` with probabilities, without its checks of each call.
        draws = np.searchsorted(self._ends, self._random.random(tokens), side="right") + 1
        return int(np.searchsorted(np.cumsum(draws), tokens)) + 1


class DraftHeads:
    """`StepTimes` of draft heads that cost as much as some layers of the target.

    Args:
        target: step times of the target.
        share: layers of the heads over those of the target.
    """

    def __init__(self, target: StepTimes, share: float) -> None:
        self.target, self.share, self.stages = target, share, target.stages

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds of one pass."""
        return self.share * self.target.step(prefills, decodes, kv_tokens, queries)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """Seconds of passes in consecutive steps."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        return self.share * first_s, self.share * growth_s, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of one pass of attention ranks."""
        return self.share * self.target.lockstep(ranks, queries)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the target's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds of one pass by part."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {name: self.share * seconds for name, seconds in parts.items()}


class SpeculativeSteps:
    """`StepTimes` of a target whose decodes verify drafts.

    Args:
        target: step times of the target.
        draft: step times of one pass of the draft; None where tokens are looked up.
        speculation: proposals, passes and acceptance.
    """

    def __init__(self, target: StepTimes, draft: StepTimes | None, speculation: Speculation) -> None:
        self.target, self.draft = target, draft
        self.queries, self.passes = speculation.queries, speculation.draft_passes if draft else 0
        self.host_s = speculation.host_s
        self.stages = target.stages
        self._growth = speculation.mean() / self.queries
        self.expanded = speculation.expanded

    def _verify(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> float:
        """Seconds of verification; where expanded, each token is a sequence of its own."""
        if self.expanded:
            return self.target.step(prefills, decodes * self.queries, kv_tokens * self.queries)
        return self.target.step(prefills, decodes, kv_tokens, self.queries)

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Proposals, then verification; prompts pass through target and draft."""
        seconds = self._verify(prefills, decodes, kv_tokens)
        if decodes:
            seconds += self.host_s
        if self.draft is None:
            return seconds
        if decodes and self.passes:
            seconds += self.passes * self.draft.step((), decodes, kv_tokens)
        return seconds + (self.draft.step(prefills, 0, 0) if prefills else 0.0)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """As `step`, while KV grows by the mean tokens of a step."""
        if self.expanded:
            many = self.queries
            verify_s, verify_growth_s, steps = self.target.stretch(decodes * many, kv_tokens * many)
            verify_growth_s *= many
        else:
            verify_s, verify_growth_s, steps = self.target.stretch(decodes, kv_tokens, self.queries)
        pace = self._growth * self.queries
        seconds, growth_s = verify_s + self.host_s, verify_growth_s * self._growth
        if self.draft is not None and self.passes:
            propose_s, propose_growth_s, propose_steps = self.draft.stretch(decodes, kv_tokens)
            seconds += self.passes * propose_s
            growth_s += self.passes * propose_growth_s * pace
            steps = max(int(min(steps, propose_steps / pace)), 1)
        return seconds, growth_s, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Verification and proposals of ranks that step together."""
        seconds = self.target.lockstep(ranks, self.queries)
        if any(batch.decodes for batch in ranks):
            seconds += self.host_s
        if self.draft is None:
            return seconds
        decodes = [batch._replace(prefills=()) for batch in ranks]
        prompts = [RankBatch(batch.prefills, 0, 0) for batch in ranks]
        seconds += self.passes * self.draft.lockstep(decodes)
        return seconds + (self.draft.lockstep(prompts) if any(batch.prefills for batch in ranks) else 0.0)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the target's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and drafting."""
        parts = dict(self.target.parts(prefills, decodes, kv_tokens))
        parts["drafting"] = max(self.step(prefills, decodes, kv_tokens) - sum(parts.values()), 0.0)
        return parts
