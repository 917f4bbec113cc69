"""Drafts beside a pipeline of small verifications; a rejection cancels the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.serving.question.speculation import Speculation
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, StepTimes, Stretch


class AsynchronousSteps:
    """`StepTimes` of a pipeline that a draft on devices of its own keeps full (PipeInfer).

    A step here is the time from one rejection to the next. The corrected token enters the pipeline alone and
    at once; runs of ``tokens`` proposals follow it, one every T seconds, where T is the longer of a stage's
    time for a run and the draft's time for its proposals. With A proposals accepted, the run that corrects
    proposal A + 1 leaves V + ceil(A / tokens) T after the rejection, V being the pipeline's seconds for one
    token. Runs behind a rejection are cancelled, so the next step begins at once.

    Args:
        target: step times of the target.
        draft: step times of one pass of the draft.
        speculation: proposals of a run, and acceptance.

    Source: Butler et al., PipeInfer, arXiv 2407.11798 (continuous asynchronous speculation, early inference
    cancellation).
    """

    def __init__(self, target: StepTimes, draft: StepTimes, speculation: Speculation) -> None:
        self.target, self.draft = target, draft
        self.tokens, self.host_s = speculation.tokens, speculation.host_s
        self.stages = 1
        """One batch fills the pipeline; no other micro batch uses it."""
        shares = speculation.shares()
        self.pace = speculation.mean()
        self.runs = float(shares @ np.ceil(np.arange(len(shares)) / self.tokens))
        """Mean runs of proposals before the one that corrects the first rejected proposal."""

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds from a rejection to the next; prompts pass through the target alone."""
        seconds = self.target.step(prefills, decodes, kv_tokens, 1)
        if not decodes:
            return seconds
        stage_s = self.target.step((), decodes, kv_tokens, self.tokens) / self.target.stages
        draft_s = self.tokens * self.draft.step((), decodes, kv_tokens)
        return seconds + self.host_s + self.runs * max(stage_s, draft_s)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """As `step`, with the growth of its secant over a stretch of the target."""
        steps = max(int(self.target.stretch(decodes, kv_tokens, 1)[2] / self.pace), 1)
        first = self.step((), decodes, kv_tokens)
        last = self.step((), decodes, kv_tokens + int(decodes * self.pace * steps))
        return first, (last - first) / steps, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of the ranks' batches together; a pipeline has one rank a stage."""
        chunks = [chunk for batch in ranks for chunk in batch.prefills]
        decodes, kv_tokens = sum(batch.decodes for batch in ranks), sum(batch.kv_tokens for batch in ranks)
        return self.step(chunks, decodes, kv_tokens)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the target's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and the runs of proposals."""
        parts = dict(self.target.parts(prefills, decodes, kv_tokens))
        parts["drafting"] = max(self.step(prefills, decodes, kv_tokens) - sum(parts.values()), 0.0)
        return parts
