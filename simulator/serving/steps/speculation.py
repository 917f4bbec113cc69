"""Cost of speculative decoding: drafts and their verification in a step, and the tokens that it yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from simulator.serving.question.draft_budget import Verified
from simulator.serving.question.speculation import Speculation
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, StepTimes, Stretch


class Drafts:
    """Draws of the number of steps of a sequence."""

    def __init__(self, speculation: Speculation, seed: list[int]) -> None:
        self.pace = speculation.mean()
        """Mean tokens of a step; under a budget, of the batch that a sequence last joined."""
        self._ends = np.cumsum(speculation.shares())
        self._ends /= self._ends[-1]
        self._random = np.random.default_rng(seed)
        self._budgeted = None if speculation.budget is None else Budgeted(speculation)
        self._queries = speculation.queries

    def queries(self, sequences: int) -> int:
        """Tokens of a batch that a step computes, drafts among them."""
        if self._budgeted is None or not sequences:
            return sequences * self._queries
        return ceil(sequences * self._budgeted[sequences].queries)

    def steps(self, tokens: int, sequences: int) -> int:
        """Steps that yield the given number of tokens, beside a batch as when the sequence joins."""
        if self._budgeted is not None:
            verified = self._budgeted[sequences]
            self.pace, self._ends = verified.mean, np.cumsum(verified.shares)
        # `Generator.choice` with probabilities, without its checks of each call. Most need far fewer draws
        # than tokens, but the next sequence begins behind all of them.
        random = self._random.random(tokens)
        for some in (random[: int(1.25 * tokens / self.pace) + 16], random):
            reached = (self._ends.searchsorted(some, side="right") + 1).cumsum()
            if reached[-1] >= tokens:
                break
        return int(reached.searchsorted(tokens)) + 1


class Budgeted(dict[int, Verified]):
    """What batches verify under a budget, by their sequences; made when first asked for."""

    def __init__(self, speculation: Speculation) -> None:
        super().__init__()
        self._speculation = speculation

    def __missing__(self, sequences: int) -> Verified:
        """A batch of another size."""
        verified = self[sequences] = self._speculation.in_batch(sequences)
        return verified


class HeadTimes(NamedTuple):
    """Seconds of a pass of draft heads, which cost as much as some layers of the target."""

    share: float
    """Layers of the heads over those of the target."""
    pass_s: float = 0.0
    """Of a pass beside its layers: its launches, output layer and choice of tokens."""

    @classmethod
    def of(cls, speculation: Speculation, layers: int) -> HeadTimes:
        """Of heads behind a target of ``layers`` layers."""
        return cls(speculation.draft_layers / layers, speculation.pass_s)

    def seconds(self, target_s: Any) -> Any:
        """Of passes, by steps of the target with the same batch; numbers or arrays."""
        return self.pass_s + self.share * target_s


class DraftHeads:
    """`StepTimes` of draft heads.

    Args:
        target: step times of the target.
        times: of a pass, by those of the target.
    """

    def __init__(self, target: StepTimes, times: HeadTimes) -> None:
        self.target, self.times, self.stages = target, times, target.stages

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds of one pass."""
        return self.times.seconds(self.target.step(prefills, decodes, kv_tokens, queries))

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """Seconds of passes in consecutive steps."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        return self.times.seconds(first_s), self.times.share * growth_s, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of one pass of attention ranks."""
        return self.times.seconds(self.target.lockstep(ranks, queries))

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the target's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds of one pass by part."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {name: self.times.share * seconds for name, seconds in parts.items()}


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
        self._budgeted = None if speculation.budget is None else Budgeted(speculation)
        self.expanded = speculation.expanded
        self._grows = speculation.branches > 1

    def _drafted(self, decodes: int) -> int:
        """Tokens of a sequence in one pass of the draft: a level of its tree."""
        if not self._grows or self._budgeted is None:
            return 1
        return max(ceil((self._budgeted[max(decodes, 1)].queries - 1.0) / self.passes), 1)

    def _verify(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> float:
        """Seconds of verification; where expanded, each token is a sequence of its own."""
        if self.expanded:
            return self.target.step(prefills, decodes * self.queries, kv_tokens * self.queries)
        if self._budgeted is None or not decodes:
            return self.target.step(prefills, decodes, kv_tokens, self.queries)
        few, more, share = self._between(decodes)
        least = self.target.step(prefills, decodes, kv_tokens, few)
        return least + share * (self.target.step(prefills, decodes, kv_tokens, more) - least)

    def _between(self, decodes: int) -> tuple[int, int, float]:
        """Whole tokens below and above the mean of a sequence under the budget, and the place between."""
        queries = self.queries if self._budgeted is None else self._budgeted[max(decodes, 1)].queries
        few = int(queries)
        return few, max(ceil(queries), 1), queries - few

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Proposals, then verification; prompts pass through target and draft."""
        seconds = self._verify(prefills, decodes, kv_tokens)
        if decodes:
            seconds += self.host_s
        if self.draft is None:
            return seconds
        if decodes and self.passes:
            seconds += self.passes * self.draft.step((), decodes, kv_tokens, self._drafted(decodes))
        return seconds + (self.draft.step(prefills, 0, 0) if prefills else 0.0)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """As `step`, while KV grows by the mean tokens of a step."""
        if self.expanded:
            many = self.queries
            verify_s, verify_growth_s, steps = self.target.stretch(decodes * many, kv_tokens * many)
            verify_growth_s *= many
        elif self._budgeted is None:
            verify_s, verify_growth_s, steps = self.target.stretch(decodes, kv_tokens, self.queries)
        else:
            return self._budgeted_stretch(decodes, kv_tokens, self._budgeted[decodes].mean)
        pace = self._growth * self.queries
        seconds, growth_s = verify_s + self.host_s, verify_growth_s * self._growth
        return self._proposed(decodes, kv_tokens, pace, (seconds, growth_s, steps))

    def _budgeted_stretch(self, decodes: int, kv_tokens: int, pace: float) -> Stretch:
        """A stretch whose sequences verify a mean of tokens that is no whole number."""
        few, more, share = self._between(decodes)
        (low_s, low_growth_s, low), (high_s, high_growth_s, high) = (
            self.target.stretch(decodes, kv_tokens, queries) for queries in (few, more)
        )
        growth_s = (1.0 - share) * low_growth_s / few + share * high_growth_s / more
        seconds = low_s + share * (high_s - low_s) + self.host_s
        steps = max(int(min(low * few, high * more) / pace), 1)
        return self._proposed(decodes, kv_tokens, pace, (seconds, growth_s * pace, steps))

    def _proposed(self, decodes: int, kv_tokens: int, pace: float, verified: Stretch) -> Stretch:
        """A stretch of verification with its proposals."""
        seconds, growth_s, steps = verified
        if self.draft is not None and self.passes:
            many = self._drafted(decodes)
            propose_s, propose_growth_s, propose_steps = self.draft.stretch(decodes, kv_tokens, many)
            seconds += self.passes * propose_s
            growth_s += self.passes * propose_growth_s * pace / many
            steps = max(int(min(steps, propose_steps * many / pace)), 1)
        return seconds, growth_s, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Verification and proposals of ranks that step together."""
        # Ranks share what follows: they verify as many tokens a sequence as the fullest.
        fullest = max(batch.decodes for batch in ranks)
        tokens = self.queries if self._budgeted is None else self._between(fullest)[1]
        seconds = self.target.lockstep(ranks, tokens)
        if fullest:
            seconds += self.host_s
        if self.draft is None:
            return seconds
        decodes, prompts = ranks, [batch for batch in ranks if batch.prefills]
        if prompts:
            decodes = [RankBatch((), batch.decodes, batch.kv_tokens) for batch in ranks]
        seconds += self.passes * self.draft.lockstep(decodes, self._drafted(fullest))
        if not prompts:
            return seconds
        return seconds + self.draft.lockstep([RankBatch(batch.prefills, 0, 0) for batch in ranks])

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the target's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and drafting."""
        parts = dict(self.target.parts(prefills, decodes, kv_tokens))
        parts["drafting"] = max(self.step(prefills, decodes, kv_tokens) - sum(parts.values()), 0.0)
        return parts
