"""Speculation at one step: throughput with drafts over that without."""

from __future__ import annotations

from simulator.serving.question.speculation import Speculation
from simulator.serving.steady.kinds import ReplicaKind, table_of
from simulator.serving.steps.speculation import DraftHeads, HeadTimes, SpeculativeSteps


def speed_up(kind: ReplicaKind, speculation: Speculation, accepted: float, keys: int) -> float:
    """Throughput with speculation over that without, of one sequence.

    Args:
        kind: the replica.
        speculation: drafts and their verification; heads or looked-up tokens.
        accepted: mean tokens of a step, the target's own token included.
        keys: KV tokens of the sequence.
    """
    table = table_of(kind, 2 * speculation.queries, 1, 2 * keys)
    heads = DraftHeads(table, HeadTimes.of(speculation, kind.model.layers))
    drafted = SpeculativeSteps(table, heads, speculation).step((), 1, keys)
    return accepted * table.step((), 1, keys) / drafted
