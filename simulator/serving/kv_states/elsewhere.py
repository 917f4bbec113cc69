"""KV outside device memory: read in every step, or attention where the KV lives."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from simulator.serving.kv_states.base import ReplicaFacts, State
from simulator.serving.question.places import Place, read_rate


class Offloaded(State):
    """KV lies in the host or on SSDs, and every step reads it layer by layer, beside the computation.

    It makes room for batches that device memory does not hold; each step lasts as long as the link takes.
    """

    name: ClassVar[str] = "offloaded"
    rule: ClassVar[str] = "steps read the KV from the host or SSDs, layer by layer beside the computation"
    source: ClassVar[str] = "Sheng et al., FlexGen (arXiv 2303.06865)"
    beside: ClassVar[bool] = True
    place: Place = Field(default="host", description="where KV is: host, nvme or remote")
    gigabytes: float = Field(default=200.0, gt=0, le=1e9, description="room for KV of a replica")
    cpu_bytes_s: float = Field(
        default=0.0,
        ge=0,
        le=1e15,
        description="rate at which a replica's host processors compute decodes' attention over KV there, B/s",
    )

    def tokens(self, replica: ReplicaFacts) -> float:
        """See `State.tokens`."""
        return self.gigabytes * 1e9 / replica.token_bytes

    def away_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: float, new: int) -> float:
        """See `State.away_s`; the way back carries new KV at the same time.

        Processors compute attention where they read the KV faster than the link carries it (FlexGen's
        ``cpu_cache_compute``).
        """
        rate = read_rate(replica.cluster, replica.devices, self.place)
        if decodes and self.place == "host" and self.cpu_bytes_s > rate:
            sent = decodes * replica.shipped_bytes / rate
            return max(
                kv_tokens * replica.token_bytes / self.cpu_bytes_s + sent, new * replica.token_bytes / rate
            )
        return max(kv_tokens if decodes else 0.0, float(new)) * replica.token_bytes / rate


class InStorage(State):
    """Drives compute attention over the KV that they hold: queries go there, results come back.

    It helps in proportion to the drives' internal rate over their link, with long contexts.
    """

    name: ClassVar[str] = "in-storage"
    rule: ClassVar[str] = "drives compute decodes' attention over the KV that they hold"
    source: ClassVar[str] = "Pan et al., InstInfer (arXiv 2409.04992)"
    drives: int = Field(default=1, ge=1, le=1024, description="computational drives of a replica")
    gigabytes: float = Field(default=2000.0, gt=0, le=1e9, description="room for KV of a drive")
    internal_bytes_s: float = Field(
        default=11.2e9, gt=0, le=1e15, description="rate at which a drive's engine reads its flash, B/s"
    )
    link_bytes_s: float = Field(default=3.5e9, gt=0, le=1e15, description="rate of a drive's link, B/s")
    latency_s: float = Field(
        default=20e-6, ge=0, le=1, description="seconds of a message to a drive and back"
    )
    kept: float = Field(default=1.0, gt=0, le=1, description="share of the KV that sparse attention reads")

    @property
    def read(self) -> float:
        """See `State.read`."""
        return 0.0

    def tokens(self, replica: ReplicaFacts) -> float:
        """See `State.tokens`."""
        return self.drives * self.gigabytes * 1e9 / replica.token_bytes

    def away_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: float, new: int) -> float:
        """See `State.away_s`."""
        link = self.drives * self.link_bytes_s
        written = max(new - decodes, 0) * replica.token_bytes / link
        if not decodes:
            return written
        inside = self.kept * kv_tokens * replica.token_bytes / (self.drives * self.internal_bytes_s)
        sent = decodes * replica.shipped_bytes / link
        return max(inside + sent + replica.model.layers * self.latency_s, written)


class AttentionPool(State):
    """Devices of another pool hold the KV and compute decodes' attention.

    With two batches in flight one computes here while the other's attention runs there. It helps where
    attention takes about as long as the rest of a step; the links' latency counts in every layer.
    """

    name: ClassVar[str] = "attention-pool"
    rule: ClassVar[str] = "devices of a pool of role attention hold the KV and compute decodes' attention"
    source: ClassVar[str] = (
        "Chen et al., Lamina (arXiv 2405.01814); attention-FFN disaggregation (2507.19427)"
    )
    in_flight: int = Field(default=2, ge=1, le=2, description="batches in flight: 1 or 2")

    @property
    def read(self) -> float:
        """See `State.read`."""
        return 0.0

    @property
    def batches(self) -> int:
        """See `State.batches`."""
        return self.in_flight

    def tokens(self, replica: ReplicaFacts) -> float:
        """See `State.tokens`."""
        return 0.0 if replica.attention is None else replica.attention.memory_bytes / replica.token_bytes

    def away_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: float, new: int) -> float:
        """See `State.away_s`."""
        devices = replica.attention
        if devices is None:
            return 0.0
        written = max(new - decodes, 0) * replica.token_bytes / devices.bandwidth
        if not decodes:
            return written
        share = -(-decodes // devices.replicas)
        attention = devices.table.decode_attention_s(share, max(int(kv_tokens / devices.replicas), share))
        sent = decodes * replica.shipped_bytes / devices.bandwidth
        return max(attention + sent + 2.0 * replica.model.layers * devices.latency_s, written)
