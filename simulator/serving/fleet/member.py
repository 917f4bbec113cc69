"""Replicas as members of a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simulator.serving.adapters import AdapterStore
from simulator.serving.fleet.transfer import TransferEnd
from simulator.serving.replica.base import StepLoop
from simulator.serving.replica.meter import Meter
from simulator.serving.setting import PoolSetting
from simulator.serving.workload.request import Request


@dataclass(eq=False)
class Member:
    """A replica of the fleet."""

    index: int
    pool: PoolSetting
    replica: StepLoop
    meter: Meter
    rank: int = 0
    """Rank of its first device."""
    started_s: float = 0.0
    drained_s: float | None = None
    """Time at which it stopped taking requests, s."""
    last_s: float = 0.0
    """Time at which its last sequence ended, s."""
    up: bool = True
    """Whether the replica is up (has not failed)."""
    failures: int = 0
    coming: int = 0
    """Sequences whose KV is on its way from a prefill replica."""
    resized: Member | None = None
    """The replica that took its place when ranks joined or left."""
    waited: float = 0.0
    """Seconds for which devices that join it were held before, summed over them."""
    adapters: AdapterStore | None = None
    """Adapters in its memory; None where requests have none."""
    advanced_s: float = 0.0
    """Time to which its steps ran for the last request, ahead of the clock by what it takes to come in."""

    def __post_init__(self) -> None:
        self.empty_adapters()
        self.ingest_s = self.pool.options.ingest_s + self.pool.costs.first_token_s
        """Seconds from a client's send to the engine's queue."""
        self.receive_interval = self.pool.options.receive_interval
        """Decode steps between two looks at the queue of new requests."""
        self.start(self.started_s)

    def start(self, now: float) -> None:
        """Note when it starts."""
        self.started_s = now
        self.ready_s = now + self.pool.options.compile_s
        """Time from which its kernels are compiled, s."""

    def empty_adapters(self) -> None:
        """Forget all adapters, as a replica that has just started."""
        resident = self.pool.costs.adapters
        self.adapters = None if resident is None else AdapterStore(resident.room, resident.load_s)

    @cached_property
    def place(self) -> TransferEnd:
        """The replica, as transfers name it."""
        return TransferEnd(self.index, self.pool.cluster, self.rank, self.pool.pool.devices)

    @property
    def load(self) -> int:
        """Sequences waiting and running, and those whose KV is on its way."""
        return self.replica.load + self.coming

    @property
    def queue(self) -> int:
        """Sequences waiting."""
        return self.replica.queue

    # Routers ask often: loops take a fifth of the time of sums over one cache and no sequence.

    @property
    def running(self) -> int:
        """Slots in use."""
        return self.replica.running

    @property
    def batch_tokens(self) -> int:
        """KV tokens of the decodes, and tokens of the sequences waiting."""
        tokens = 0
        for batcher in self.replica.batchers:
            tokens += batcher.kv_tokens
        for queue in self.replica.queues:
            for sequence in queue:
                tokens += sequence.target
        return tokens

    @property
    def queued_s(self) -> float:
        """Seconds to compute the prompts of the sequences waiting, each alone."""
        seconds, steps = 0.0, self.pool.costs.steps
        for queue in self.replica.queues:
            for sequence in queue:
                seconds += steps.step(((sequence.target, 0),), 0, 0)
        return float(seconds)

    @property
    def queued_output(self) -> int:
        """Output tokens of the sequences waiting."""
        tokens = 0
        for queue in self.replica.queues:
            for sequence in queue:
                tokens += sequence.output
        return tokens

    @property
    def group(self) -> str:
        """Name of its pool."""
        return self.pool.name

    @property
    def decodes(self) -> bool:
        """Whether it runs outputs alone."""
        return self.pool.pool.role == "decode"

    def cached(self, request: Request) -> int:
        """Tokens of the request's prompt in its prefix cache."""
        return self.replica.cached(request)

    def in_memory(self, request: Request) -> int:
        """Tokens of the request's prompt in device memory, tiers left out."""
        return max(batcher.kv.in_memory(request) for batcher in self.replica.batchers)

    @property
    def free_blocks(self) -> int:
        """Free KV blocks of all ranks, less the demand of waiting sequences; negative where it is more."""
        free, replica = 0, self.replica
        for kv in replica.caches:
            free += kv.free
        for queue in replica.queues:
            for sequence in queue:
                free -= sequence.target // self.pool.options.block_tokens + 1
        return free

    @property
    def kv_use(self) -> float:
        """Share of KV blocks in use."""
        free = total = 0
        for kv in self.replica.caches:
            free, total = free + kv.free, total + kv.total
        return 1.0 - free / total

    @property
    def pending(self) -> int:
        """Prompt tokens of its requests that no ended step has computed and no cache holds."""
        tokens, replica = 0, self.replica
        for step in replica.planned:
            if step is not None:
                tokens += step.prompt
        for batcher in replica.batchers:
            for sequence in batcher.prefilling:
                tokens += sequence.target - sequence.computed
        for queue in replica.queues:
            for sequence in queue:
                tokens += sequence.target - self.cached(sequence.request)
        return tokens

    @property
    def used_tokens(self) -> int:
        """Tokens that its KV blocks in use hold."""
        used = 0
        for kv in self.replica.caches:
            used += kv.total - kv.free
        return self.pool.options.block_tokens * used

    def seconds(self, request: Request) -> tuple[float, float]:
        """Seconds that the request would wait and compute beside the present batch; outputs are known."""
        steps, slots = self.pool.costs.steps, self.pool.options.max_sequences
        batch = min(self.running + self.queue + 1, slots)
        token_s = steps.step((), batch, self.batch_tokens + request.prompt)
        wait_s = self.queued_s
        if self.running >= slots:
            wait_s += token_s * self.queued_output / slots
        return wait_s, steps.step(((request.prompt, 0),), 0, 0) + request.output * token_s

    def holds(self, request: Request) -> bool:
        """Whether it holds the request's adapter; without adapters every replica does."""
        return self.adapters is None or self.adapters.holds(request.adapter)
