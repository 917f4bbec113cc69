"""Interface of KV states: where the KV of decodes lives, how much of it is kept, what a step pays for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from core.loading import Strict
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.serving.steps.table import IterationTable

SHIPPED_BYTES = 2.0
"""Of an element of queries, keys, values and results between devices: 16 bits."""


@dataclass(frozen=True)
class AttentionDevices:
    """Devices of a pool of role `attention`, as one of the replicas that they serve sees them.

    Attributes:
        table: step times of one attention replica, whose attention of decodes alone is used.
        replicas: attention replicas among which the sequences are divided.
        memory_bytes: their memory for KV.
        bandwidth, latency_s: of the route between a replica and its attention devices, B/s and s.
    """

    table: IterationTable
    replicas: int
    memory_bytes: float
    bandwidth: float
    latency_s: float


@dataclass(frozen=True)
class ReplicaFacts:
    """Model, cluster, devices and KV size of a replica, as its state reads them.

    Attributes:
        token_bytes: KV of a token over all layers and ranks.
        device_tokens: tokens whose KV device memory holds.
        attention: devices of attention pools, where there are some.
        table: step times of the replica's own devices; None where they overlap.
    """

    model: Model
    cluster: Cluster
    devices: int
    token_bytes: float
    device_tokens: float
    attention: AttentionDevices | None = None
    table: IterationTable | None = None

    @cached_property
    def shipped_bytes(self) -> float:
        """Bytes of queries, keys, values and results of a decoding token, over all layers."""
        model = self.model
        width = model.query_width + model.kv_cache_width + model.value_width
        return SHIPPED_BYTES * model.layers * width


class State(Strict):
    """One way to keep or place KV. Its fields are its parameters (`state.options`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        beside: what `away_s` gives runs beside the step's kernels, else between them.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    beside: ClassVar[bool] = False

    @property
    def read(self) -> float:
        """Share of the KV tokens that attention on the replica's devices reads."""
        return 1.0

    @property
    def batches(self) -> int:
        """Batches in flight, of which one is away while another computes."""
        return 1

    @property
    def away(self) -> bool:
        """Whether links or other devices take time in steps."""
        return True

    def tokens(self, replica: ReplicaFacts) -> float:
        """Tokens whose KV fits."""
        return replica.device_tokens

    def away_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: float, new: int) -> float:
        """Seconds of links and of other devices in a step.

        Args:
            replica: what the state reads of it.
            decodes: sequences that decode.
            kv_tokens: sum of their KV tokens.
            new: tokens whose KV the step makes.
        """
        return 0.0

    def decode_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: int, queries: int) -> float | None:
        """Seconds of a step without prompts, where they are no sum of the replica's own and those away.

        Args:
            replica: what the state reads of it.
            decodes: sequences that decode.
            kv_tokens: sum of their KV tokens.
            queries: tokens of each.
        """
        return None
