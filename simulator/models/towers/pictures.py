"""The pictures or clips of a request, or of a sequence that is trained on, as the model's tower has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import InputError
from simulator.models.towers.images import Clips, Images
from simulator.models.towers.rules import Shape
from simulator.models.towers.tower import Tower

if TYPE_CHECKING:
    from simulator.models import Model

WIDTH = 2.0
"""Bytes of a weight and of an element of an embedding: engines keep towers in 16 bits (vLLM 0.19,
quantization configurations leave ``visual`` out)."""


@dataclass(frozen=True)
class Pictures:
    """Pictures, or clips of sound, of each request or sequence.

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


def hearing(model: Model, where: str) -> Model:
    """The model with its audio encoder in place of its vision tower, which takes memory as ever.

    Args:
        model: which hears.
        where: key path of the clips, for errors.

    Raises:
        InputError: the model has no audio encoder that is known.
    """
    if model.audio is None:
        raise InputError(
            f"{model.name} has no audio encoder that is known; allowed: models whose config.json has one of "
            "a known family (docs/images.md), or no audio",
            where,
        )
    return model.model_copy(update={"tower": model.audio, "audio": model.tower, "tower_problem": ""})


def pictures_of(model: Model, images: Sequence[Images | Clips], where: str) -> Pictures | None:
    """The pictures or clips of a request; None without any.

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
            f"the {'clips' if model.tower.hears else 'images'} have {pictures.tokens:,} tokens; {model.name} "
            f"takes fewer than {model.max_sequence:,}",
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
