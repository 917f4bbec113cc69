"""Replay of a benchmark client against one replica of the event engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.validation.serving.case import Setup
from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.kv import PagedBlocks
from simulator.serving.replica.lockstep import LockstepReplica
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.pipeline import PipelinedReplica
from simulator.serving.replica.replica import Replica
from simulator.serving.replica.schedulers import make_scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.costs import options_of
from simulator.serving.steps.table import IterationTable
from simulator.serving.workload.request import Request

Array = NDArray[np.float64]

CLIENT_S = 1e-3
"""From a client's last token to its next request (assumed)."""


@dataclass(frozen=True)
class Timed:
    """Latencies of requests in the order of their arrival, s."""

    arrival: Array
    first: Array
    last: Array
    output: Array

    @property
    def ttft(self) -> Array:
        """Time to first token."""
        return self.first - self.arrival

    @property
    def e2e(self) -> Array:
        """Whole requests."""
        return self.last - self.arrival

    @property
    def tpot(self) -> Array:
        """Time per output token after the first."""
        return (self.last - self.first) / np.maximum(self.output - 1, 1)


class Client:
    """One replica and the requests that it is sent.

    Args:
        found: the replica.
        table: its step times.
        kv_blocks: of one rank.
        changes: options set to other values than the engine's defaults.
        blocks: makes the KV blocks of a rank; plain ones by default.
    """

    def __init__(
        self,
        found: Setup,
        table: IterationTable,
        kv_blocks: int,
        changes: dict[str, Any],
        blocks: Callable[[], PagedBlocks] | None = None,
    ) -> None:
        device = found.cluster.device
        fixed = found.engine.first_token_s.value + table.price.times.first_token_s
        changes = {"ingest_s": fixed, **changes}
        pool = found.pool.model_copy(update={"options": changes})
        self.options: EngineOptions = options_of(pool, device, where="replay")
        options = self.options
        scheduler = make_scheduler(options.scheduler, options.scheduler_options)
        ranks = found.pool.data

        make = blocks or (lambda: PagedBlocks(kv_blocks, options.block_tokens, options.prefix_caching))
        meter = Meter(table, kv_blocks * ranks)
        rest = (table, meter, self._left)
        if ranks > 1:
            self.replica: Any = LockstepReplica(options, scheduler, [make() for _ in range(ranks)], *rest)
        elif found.pool.pipeline > 1:
            self.replica = PipelinedReplica(options, scheduler, make(), *rest)
        else:
            self.replica = Replica(options, scheduler, make(), *rest)
        self._arrivals: list[tuple[float, int, Request]] = []
        self._done: dict[int, tuple[float, float, float, float]] = {}
        self._waiting: deque[Request] = deque()
        self.poll_s = 0.0
        """Seconds between two looks of a busy server at the queue of new requests."""
        self._random = np.random.default_rng(2)
        self._users = 0
        self._turns: dict[int, deque[Request]] = {}

    def closed(self, prompts: Iterable[int], outputs: Iterable[int], concurrency: int) -> Timed:
        """Constant concurrency: the first requests at once, each other when one ends."""
        for serial, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
            self._waiting.append(Request(serial, 0.0, int(prompt), max(int(output), 1)))
        for _ in range(min(concurrency, len(self._waiting))):
            self._send(self._waiting.popleft(), 0.0)
        return self._run()

    def open(self, requests: Iterable[Request]) -> Timed:
        """Requests at their own times."""
        for request in requests:
            self._send(request, request.arrival_s)
        return self._run()

    def users(self, requests: Iterable[Request], count: int) -> Timed:
        """Requests at their own times, dealt to users in turn; a user's next waits for the last to end."""
        for request in requests:
            self._turns.setdefault(request.serial % count, deque()).append(request)
        for turns in self._turns.values():
            first = turns.popleft()
            self._send(first, first.arrival_s)
        self._users = count
        return self._run()

    def _send(self, request: Request, now: float) -> None:
        request = request._replace(arrival_s=now)
        late = self.poll_s * self._random.random() if self.poll_s and now else 0.0
        heappush(self._arrivals, (now + late + self.options.ingest_s, request.serial, request))

    def _left(self, sequence: Sequence, now: float) -> None:
        request = sequence.request
        self._done[request.serial] = (request.arrival_s, sequence.first_s, now, float(request.output))
        if self._waiting:
            self._send(self._waiting.popleft(), now + CLIENT_S)
        turns = self._turns.get(request.serial % self._users) if self._users else None
        if turns:
            following = turns.popleft()
            self._send(following, max(following.arrival_s, now + CLIENT_S))

    def _run(self) -> Timed:
        replica, arrivals = self.replica, self._arrivals
        while True:
            queued = arrivals[0][0] if arrivals else inf
            if queued == inf and replica.next_s == inf:
                break
            if queued <= replica.next_s:
                now, _, request = heappop(arrivals)
                replica.submit(Sequence(request, now), now)
            else:
                replica.turn()
        columns = np.array([self._done[serial] for serial in sorted(self._done)]).T
        return Timed(*columns)
