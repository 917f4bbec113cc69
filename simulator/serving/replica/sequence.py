"""Sequences: requests as a replica's scheduler knows them."""

from __future__ import annotations

from operator import attrgetter

from simulator.serving.workload.request import Request

FIELDS = (
    "blocks",
    "cached",
    "cached_units",
    "computed",
    "copied",
    "encoded",
    "end_step",
    "first_s",
    "generated",
    "ghost",
    "join_kv",
    "join_step",
    "last_s",
    "loaded",
    "output",
    "preemptions",
    "priority",
    "prompt",
    "queued_s",
    "replica",
    "request",
    "retries",
    "scheduled_s",
    "target",
    "ticket",
)

_values = attrgetter(*FIELDS)


class Sequence:
    """A request in a replica. Times are seconds; NaN until they are known."""

    __slots__ = FIELDS

    def __init__(self, request: Request, queued_s: float) -> None:
        self.request = request
        self.prompt, self.output = request.prompt, request.output
        self.priority = request.priority
        self.queued_s = queued_s
        self.scheduled_s = self.first_s = self.last_s = float("nan")
        self.target = request.prompt
        """Tokens to compute before the next token appears: the prompt and, after a preemption, the generated
        tokens."""
        self.computed = 0
        """Number of those tokens that are computed or found in a cache."""
        self.cached = 0
        """Prompt tokens that the first admission found in a cache."""
        self.encoded: tuple[float, float, int] | None = None
        """Start, end and replica of the encoding of its images, where their embeddings are yet to be sent."""
        self.generated = 0
        """Output tokens when the sequence joined the decodes; exact again when it leaves them."""
        self.join_step = self.join_kv = 0
        self.end_step = -1
        """Decode step at which the last token appears; -1 outside the decodes."""
        self.ticket = 0
        """Incremented when it leaves the decodes early; older entries in the heap of ends are then stale."""
        self.blocks = 0
        """KV blocks held outside of shared prefixes, counted when they are taken for a chunk."""
        self.cached_units: list[int] = []
        """Prefix ids that the sequence holds in the cache."""
        self.ghost: tuple[int, int, int] | None = None
        """At its preemption: blocks allocated so far, free blocks, and its own blocks."""
        self.loaded = 0
        """Tokens whose KV comes from elsewhere (another replica, the host) when it is admitted."""
        self.copied = 0
        """Tokens whose KV the host has kept from an earlier swap."""
        self.preemptions = 0
        self.retries = 0
        """Number of times that a replica failure lost it and it was sent again."""
        self.replica = -1

    def __copy__(self) -> Sequence:
        # A loop over the names takes three times as long, and a prefill replica copies each sequence.
        new = Sequence.__new__(Sequence)
        (
            new.blocks, new.cached, new.cached_units, new.computed, new.copied, new.encoded, new.end_step,
            new.first_s, new.generated, new.ghost, new.join_kv, new.join_step, new.last_s, new.loaded,
            new.output, new.preemptions, new.priority, new.prompt, new.queued_s, new.replica, new.request,
            new.retries, new.scheduled_s, new.target, new.ticket,
        ) = _values(self)  # fmt: skip
        return new
