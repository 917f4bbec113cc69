"""The pictures of a request, or of a sequence that is trained on, as the model's tower sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import InputError
from simulator.models.towers.images import Images
from simulator.models.towers.rules import Shape
from simulator.models.towers.tower import Tower

if TYPE_CHECKING:
    from simulator.models import Model

WIDTH = 2.0
"""Bytes of a weight and of an element of an embedding: engines keep towers in 16 bits (vLLM 0.19,
quantization configurations leave ``visual`` out)."""


@dataclass(frozen=True)
class Pictures:
    """Pictures of each request or sequence.

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
            f"the images have {pictures.tokens:,} tokens; {model.name} takes fewer than "
            f"{model.max_sequence:,}",
            where,
        )
    return pictures


def seeing(model: Model, images: Sequence[Images], tokens: int, where: str) -> Model:
    """The model of sequences of some tokens with these images; as it is without any.

    Args:
        model: which sees them.
        images: of every sequence.
        tokens: of a sequence.
        where: key path of the images, for errors.

    Raises:
        InputError: as `pictures_of`, or a sequence has fewer tokens than its images.
    """
    pictures = pictures_of(model, images, where)
    if pictures is None:
        return model
    if pictures.tokens > tokens:
        raise InputError(f"the images have {pictures.tokens:,} tokens; a sequence has {tokens:,}", where)
    # The answer holds what the note says is left out.
    return model.model_copy(update={"left_out": ""})
