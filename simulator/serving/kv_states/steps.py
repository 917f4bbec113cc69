"""Step times of a replica whose KV is not all in its memory, or not all read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from core.errors import InfeasibleError, InputError
from simulator.serving.kv_states.attention_ffn import AttentionFfn
from simulator.serving.kv_states.base import ReplicaFacts, State
from simulator.serving.kv_states.elsewhere import AttentionPool, InStorage, Offloaded
from simulator.serving.kv_states.kept import DroppedTokens, SparseHost
from simulator.serving.question.policies import make_policy
from simulator.serving.question.state import KvState
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, ReplicaCosts, StepTimes, Stretch

states: Mapping[str, type[State]] = {
    kind.name: kind for kind in (DroppedTokens, SparseHost, Offloaded, InStorage, AttentionPool, AttentionFfn)
}
LONGEST_STRETCH = 1 << 20
STRAIGHT = 1e-9
"""Largest bend of a stretch, over its first step."""


def make_state(kv_state: KvState, where: str) -> State:
    """The state that a pool names, with its parameters; raises as `make_policy`."""
    return make_policy(
        "state of KV", states, kv_state.kind, kv_state.options, f"{where}.kind", f"{where}.options"
    )


class StateSteps:
    """`StepTimes` with the links and other devices that a state of KV uses.

    Args:
        target: step times with all KV in device memory.
        state: where KV lives.
        replica: what the state reads of it.
    """

    def __init__(self, target: StepTimes, state: State, replica: ReplicaFacts) -> None:
        self.target, self.state, self.replica, self.stages = target, state, replica, target.stages
        self._read = state.read

    def _seen(self, decodes: int, kv_tokens: float) -> int:
        """KV tokens that attention on the replica's devices reads."""
        return max(int(self._read * kv_tokens), decodes)

    def _with(self, seconds: float, decodes: int, kv_tokens: float, new: int) -> float:
        if not self.state.away:
            return seconds
        away = self.state.away_s(self.replica, decodes, kv_tokens, new)
        return max(seconds, away) if self.state.beside else seconds + away

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        if not prefills and decodes:
            seconds = self.state.decode_s(self.replica, decodes, kv_tokens, queries)
            if seconds is not None:
                return seconds
            if self.state.batches > 1 and decodes > 1:
                return self._alternating(decodes, kv_tokens, queries)
        seconds = self.target.step(prefills, decodes, self._seen(decodes, kv_tokens), queries)
        new = decodes * queries + sum(chunk[0] for chunk in prefills)
        return self._with(seconds, decodes, kv_tokens, new) if seconds else seconds

    def _alternating(self, decodes: int, kv_tokens: int, queries: int) -> float:
        """Seconds of a step of two batches, one of which is away while the other computes."""
        half = -(-decodes // 2)
        share = half / decodes
        here = self.target.step((), half, self._seen(half, share * kv_tokens), queries)
        away = self.state.away_s(self.replica, half, share * kv_tokens, half * queries)
        # One batch alone where the second has nothing to hide behind.
        step_s = self.target.step((), decodes, self._seen(decodes, kv_tokens), queries)
        alone = self._with(step_s, decodes, kv_tokens, decodes * queries)
        return min(max(2.0 * here, 2.0 * away, here + away), alone)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; as far as the step grows in a straight line."""
        if not self.state.away:
            first, growth, steps = self.target.stretch(decodes, self._seen(decodes, kv_tokens), queries)
            return first, growth * self._read, max(int(steps / self._read), 1)
        first = self.step((), decodes, kv_tokens, queries)
        steps = self.target.stretch(decodes, self._seen(decodes, kv_tokens), queries)[2]
        steps = min(steps, LONGEST_STRETCH)
        added = decodes * queries
        growth = self.step((), decodes, kv_tokens + 2 * added, queries) - first
        growth /= 2.0
        while steps > 2:
            last = self.step((), decodes, kv_tokens + (steps - 1) * added, queries)
            middle = self.step((), decodes, kv_tokens + (steps // 2) * added, queries)
            bends = (last - first - growth * (steps - 1), middle - first - growth * (steps // 2))
            if max(map(abs, bends)) <= STRAIGHT * first * steps:
                return first, growth, steps
            steps //= 2
        return first, 0.0, 1

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`: ranks share the links."""
        seen = [rank._replace(kv_tokens=self._seen(rank.decodes, rank.kv_tokens)) for rank in ranks]
        decodes, kv_tokens = sum(rank.decodes for rank in ranks), sum(rank.kv_tokens for rank in ranks)
        new = decodes * queries + sum(chunk[0] for rank in ranks for chunk in rank.prefills)
        return self._with(self.target.lockstep(seen, queries), decodes, kv_tokens, new)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the replica's own work in the step's own time."""
        return self.target.watts(tokens, decodes, self._read * kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The target's parts, and what the step waits for KV or for attention elsewhere."""
        parts = dict(self.target.parts(prefills, decodes, self._seen(decodes, kv_tokens)))
        total = self.step(prefills, decodes, kv_tokens)
        # Micro batches that hide each other take less than the replica's own parts, which then shrink alike.
        share = min(total / max(sum(parts.values()), 1e-12), 1.0)
        parts = {name: share * seconds for name, seconds in parts.items()}
        return {**parts, "kv elsewhere": total - sum(parts.values())}


def with_state(
    costs: ReplicaCosts, kv_state: KvState, replica: ReplicaFacts, block_tokens: int, ranks: int, where: str
) -> ReplicaCosts:
    """Costs of a replica with a state of KV.

    Args:
        costs: with all KV in device memory.
        kv_state: the state.
        replica: what the state reads of it.
        block_tokens: tokens of a KV block.
        ranks: attention ranks among which the blocks are divided.
        where: key path of the state.

    Raises:
        InputError: an unknown state or parameter, or an attention pool's without one.
        InfeasibleError: no KV block fits.
    """
    state = make_state(kv_state, where)
    if isinstance(state, AttentionPool | AttentionFfn) and replica.attention is None:
        raise InputError("needs a pool of role attention beside this one", f"{where}.kind")
    if isinstance(state, AttentionFfn) and replica.table is None:
        raise InputError("attention and FFN apart beside an overlap is not modelled", f"{where}.kind")
    blocks = int(state.tokens(replica) / block_tokens / ranks)
    if blocks < 1:
        raise InfeasibleError(
            f"a state of kind {state.name} leaves no room for a KV block; more gigabytes help"
        )
    return dataclasses.replace(costs, steps=StateSteps(costs.steps, state, replica), kv_blocks=blocks)
