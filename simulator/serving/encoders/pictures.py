"""The pictures of a request as its model's tower sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import InputError
from simulator.models import Model
from simulator.models.towers import Shape, Tower
from simulator.ops.tower import tower_parameters
from simulator.serving.encoders.times import EncoderTimes
from simulator.serving.workload.images import Images

WIDTH = 2.0
"""Bytes of a weight and of an element of an embedding: engines keep towers in 16 bits (vLLM 0.19,
quantization configurations leave ``visual`` out)."""


@dataclass(frozen=True)
class Pictures:
    """Pictures of each request.

    Attributes:
        tower: the model's.
        groups: number of pictures of each size, with their shape in the tower.
        hidden: width of the language model.
    """

    tower: Tower
    groups: tuple[tuple[int, Shape], ...]
    hidden: int

    @property
    def tokens(self) -> int:
        """Tokens of a request's pictures in its prompt."""
        return sum(count * shape.tokens for count, shape in self.groups)

    @property
    def count(self) -> int:
        """Pictures of a request."""
        return sum(count for count, _ in self.groups)

    def seconds(self, times: EncoderTimes, requests: int = 1) -> float:
        """Seconds of a tower for the pictures of some requests together."""
        if not requests:
            return 0.0
        return sum(times.seconds(requests * count, shape) for count, shape in self.groups)

    @property
    def embedding_bytes(self) -> float:
        """Bytes of a request's embeddings; inner layers whose outputs are merged add theirs (DeepStack)."""
        return WIDTH * self.tokens * self.hidden * (1 + self.tower.taps)


def pictures_of(model: Model, images: Sequence[Images], where: str) -> Pictures | None:
    """The pictures of a request; None without images.

    Args:
        model: which sees them.
        images: as the workload states them.
        where: key path of the images, for errors.

    Raises:
        InputError: the model has no vision tower, or the pictures have more tokens than its context.
    """
    if not images:
        return None
    if model.tower_problem:
        raise InputError(model.tower_problem, where)
    if model.tower is None:
        raise InputError(
            f"{model.name} has no vision tower that is known; allowed: models whose config.json has one of a "
            "known family (docs/images.md), or no images",
            where,
        )
    groups = tuple((item.count, model.tower.shape(item.picture)) for item in images)
    pictures = Pictures(model.tower, groups, model.hidden)
    if pictures.tokens >= model.max_sequence:
        raise InputError(
            f"the images of a request have {pictures.tokens:,} tokens; {model.name} takes fewer than "
            f"{model.max_sequence:,}",
            where,
        )
    return pictures


def tower_bytes(tower: Tower, tensor: int) -> float:
    """Weights of a tower on one device, in 16 bits, sharded over tensor-parallel ranks."""
    return WIDTH * tower_parameters(tower) / tensor
