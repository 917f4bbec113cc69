"""Encoders of a run: a request's images pass them before the request is routed."""

from __future__ import annotations

from simulator.models.towers.pictures import Pictures
from simulator.serving.encoders import EncoderPool
from simulator.serving.fleet.member import Member
from simulator.serving.fleet.transfer import TransferEnd, Transfers
from simulator.serving.replica.sequence import Sequence
from simulator.serving.setting import ServingSetting


class EncoderQueue:
    """Replicas of an encoder pool: each encodes one request at a time, in order of arrival.

    A replica serves in order, so its state is the time until which it is busy. Embeddings leave when all
    images of a request are encoded, over the links that KV takes, or through both hosts. The host makes
    patches of a request before, on threads of their own.

    Args:
        pool: the pool.
        pictures: of each request.
    """

    def __init__(self, pool: EncoderPool, pictures: Pictures) -> None:
        self.pool, self.pictures = pool, pictures
        self.seconds, self.host_s = pool.seconds(pictures), pool.host_s(pictures)
        self.busy_s = 0.0
        """Seconds of all replicas."""
        self._free_s = [0.0] * pool.pool.replicas
        self._transfers = Transfers(1, layerwise=False)

    @classmethod
    def of(cls, setting: ServingSetting) -> EncoderQueue | None:
        """The encoder of a setting; None without a pool for it, or without images."""
        if setting.pictures is None or not setting.encoders:
            return None
        return cls(setting.encoders[0], setting.pictures)

    def encode(self, sequence: Sequence) -> float:
        """Encode a request's images on the replica that is free first; returns the end, s."""
        number = min(range(len(self._free_s)), key=self._free_s.__getitem__)
        start = max(sequence.request.arrival_s + self.host_s, self._free_s[number])
        self._free_s[number] = end = start + self.seconds
        self.busy_s += self.seconds
        sequence.encoded = (start, end, number)
        return end

    def sent(self, sequence: Sequence, member: Member) -> float:
        """When a sequence's embeddings have arrived at a replica and its engine has it, s."""
        if sequence.encoded is None:
            return sequence.queued_s
        (start, end, number), sequence.encoded = sequence.encoded, None
        # Encoders count from -1 down, beside the replicas' indices.
        devices = self.pool.pool.devices
        encoder = TransferEnd(
            -1 - number, self.pool.cluster, self.pool.first_rank + number * devices, devices
        )
        size = self.pictures.embedding_bytes
        arrived = self._transfers.end(encoder, member.place, size, start, end)
        return arrived + self.pool.engine.embedding_in_s.value * size + member.ingest_s
