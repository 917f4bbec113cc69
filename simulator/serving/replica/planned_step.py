"""A step as a scheduler plans it."""

from __future__ import annotations

from math import inf

from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.step_times import Chunk


class PlannedStep:
    """One planned step: its computation, and the sequences that yield first tokens or leave when it ends."""

    __slots__ = (
        "chunks",
        "copied",
        "decodes",
        "firsts",
        "kv_tokens",
        "leaving",
        "preempted",
        "prompt",
        "read_s",
        "until_s",
    )

    def __init__(self) -> None:
        # Empty tuples by default: most steps allocate no list.
        self.chunks: tuple[Chunk, ...] = ()
        self.prompt = 0
        """Prompt tokens: the sum over the chunks."""
        self.decodes = 0
        self.kv_tokens = 0
        self.firsts: tuple[Sequence, ...] = ()
        self.leaving: tuple[Sequence, ...] = ()
        self.preempted = False
        self.until_s = inf
        """Time from which the scheduler may decide otherwise: no stretch of equal steps goes past it."""
        self.read_s = 0.0
        """Seconds to read KV from tiers, beside the computation."""
        self.copied = 0
        """KV tokens copied to or from the host in this step."""

    @property
    def tokens(self) -> int:
        """Query tokens of the step."""
        return self.decodes + self.prompt
