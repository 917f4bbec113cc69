"""Step times of a replica whose KV lies in part on others: attention runs where the KV is.

Queries go to the lender in every layer, partial results come back. A lender computes attention over what it
lends; those seconds count on the borrower, which waits for them, so that the work of both stays what it is.
Lin et al., Infinite-LLM (arXiv 2401.02669).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.models import Model
from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.state import Route
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, StepTimes, Stretch

PARTIAL_BYTES = 4.0
"""Of an element of a partial result, in 32 bits as its maximum and sum."""
QUERY_BYTES = 2.0


def shipped_seconds(model: Model, route: Route) -> tuple[float, float]:
    """Seconds of a step for its messages, and for each token whose queries are shipped.

    Args:
        model: whose queries and partial results travel.
        route: to the lenders.
    """
    width = QUERY_BYTES * model.query_width + PARTIAL_BYTES * (model.value_width + 2.0 * model.heads)
    return 2.0 * model.layers * route.latency_s, model.layers * width / route.bandwidth


class LentSteps:
    """`StepTimes` of a replica that may use blocks of others.

    Args:
        target: step times with all KV in its own memory.
        kv: blocks of the replica, borrowed ones among them.
        own: blocks of its own.
        step_s, token_s: seconds of messages, and of each token's.
    """

    def __init__(
        self, target: StepTimes, kv: PagedBlocks, own_blocks: int, step_s: float, token_s: float
    ) -> None:
        self.target, self.stages = target, target.stages
        self._kv, self._own, self._step_s, self._token_s = kv, own_blocks, step_s, token_s

    def _more(self, tokens: int) -> float:
        """Seconds that a step is longer; a share of its tokens has KV elsewhere."""
        used = self._kv.total - self._kv.free
        if used <= self._own or not tokens:
            return 0.0
        return self._step_s + (1.0 - self._own / used) * tokens * self._token_s

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        tokens = decodes * queries + sum(chunk[0] for chunk in prefills)
        return self.target.step(prefills, decodes, kv_tokens, queries) + self._more(tokens)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; the share elsewhere counts as constant until the next look."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        return first_s + self._more(decodes * queries), growth_s, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`."""
        tokens = max((rank.decodes * queries for rank in ranks), default=0)
        return self.target.lockstep(ranks, queries) + self._more(tokens)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the same work in the step's own time."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and the messages."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {**parts, "kv elsewhere": self.step(prefills, decodes, kv_tokens) - sum(parts.values())}
