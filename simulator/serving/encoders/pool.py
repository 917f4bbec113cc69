"""Pools of role ``encoder``: devices that run the vision tower for the pools of the language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import InfeasibleError, InputError
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.models.towers.pictures import Pictures
from simulator.serving.encoders.times import EncoderTimes, tower_bytes
from simulator.serving.engines import Engine
from simulator.serving.question.deployment import Pool


@dataclass(frozen=True)
class EncoderPool:
    """A pool of role `encoder` on its cluster."""

    pool: Pool
    cluster: Cluster
    first_rank: int
    """Rank of the first device of its first replica."""
    times: EncoderTimes

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.pool.name or self.pool.role

    @property
    def devices(self) -> int:
        """Devices of all its replicas."""
        return self.pool.devices * self.pool.replicas

    engine: Engine

    def seconds(self, pictures: Pictures) -> float:
        """Seconds to encode the pictures of one request, and to copy embeddings that the host sends."""
        return self.times.requests_s(pictures) + self.engine.embedding_out_s.value * pictures.embedding_bytes

    def host_s(self, pictures: Pictures) -> float:
        """Seconds in which the host makes patches of a request, beside other requests' towers."""
        if pictures.tower.hears:
            return 0.0
        patches = sum(count * shape.patches for count, shape in pictures.groups)
        return self.engine.encoder_pixel_s.value * patches * pictures.tower.patch**2


def check_encoders(pools: Sequence[Pool], model: Model, where: str) -> None:
    """Refuse encoder pools of a text model, several of them, and none to serve.

    Raises:
        InputError: the reason, with the key path.
    """
    encoders = [number for number, pool in enumerate(pools) if pool.role == "encoder"]
    if not encoders:
        return
    place = f"{where}.pools.{encoders[0]}.role"
    if model.tower is None and model.audio is None:
        raise InputError(
            f"{model.name} has no vision tower that is known, nor an audio encoder: a pool of role encoder "
            "has nothing to run; allowed: mixed, prefill, decode, attention",
            place,
        )
    if len(encoders) > 1:
        raise InputError(f"one pool of role encoder is modelled; found {len(encoders)}", f"{where}.pools")
    if len(encoders) == len(pools):
        raise InputError("a pool of role encoder needs pools of the language model beside it", place)
    pool = pools[encoders[0]]
    if pool.data > 1 or pool.pipeline > 1:
        raise InputError("an encoder is divided by `tensor` and `replicas`, not by data or pipeline", place)


def encoder_pool(
    model: Model, pool: Pool, cluster: Cluster, used: Cluster, first_rank: int, engine: Engine
) -> EncoderPool:
    """The pool with its tower's times.

    Args:
        model: which has a tower.
        pool: of role encoder.
        cluster, used: its cluster, and the part up to its first replica's end.
        first_rank: of its first device.
        engine: of the pool.

    Raises:
        InfeasibleError: the tower does not fit a device.
    """
    tower = model.tower or model.audio
    if tower is None:
        raise InputError(f"{model.name} has no tower", "deployment")
    needed, device = tower_bytes(tower, pool.tensor), cluster.device
    if needed > device.memory_bytes:
        raise InfeasibleError(
            f"the tower of {model.name} has {needed / 1e9:.3g} GB a device, {device.name} "
            f"{device.memory_bytes / 1e9:.3g} GB"
        )
    times = EncoderTimes(tower, model, used, pool, engine)
    return EncoderPool(pool, cluster, first_rank, times, engine)
