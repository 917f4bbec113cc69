"""A tower: layers without a mask over patches or frames, and the projector to the language model's width."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.errors import InputError
from core.loading import Strict
from simulator.models.towers.rules import AnyRule, Clip, ClipFrames, Picture, Shape

Width = Annotated[int, Field(gt=0, le=2**20)]
Sizes = Annotated[int, Field(ge=0, le=2**40)]


class Projection(Strict):
    """A linear layer over merged patches."""

    inputs: Width
    outputs: Width
    bias: bool = False


class Stem(Strict):
    """A convolution over frames of sound, or a linear layer behind it, as a product over its window."""

    inputs: Width
    outputs: Width
    bias: bool = True
    rate: Annotated[float, Field(gt=0, le=2**20)] = 1.0
    """Rows of the product for each patch."""


class Tower(Strict):
    """A tower of pictures or of sound as its ``config.json`` states it."""

    name: str
    layers: Annotated[int, Field(gt=0, le=4096)]
    hidden: Width
    heads: Width
    feed_forward: Width
    gated: bool = False
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norms: Annotated[int, Field(ge=2, le=4)] = 2
    """Norms of a layer: before its two parts, or before and after."""
    qk_norm: bool = False
    """Whether queries and keys are normalised head by head."""
    bias: bool = True
    """Whether the linear layers of a layer have biases."""
    qkv_bias: bool = True
    rope: bool = False
    """Whether queries and keys are rotated by their place in the image."""
    patch: Width
    temporal: Annotated[int, Field(gt=0, le=64)] = 1
    """Frames that a patch spans; an image is repeated."""
    patch_bias: bool = True
    stem: Annotated[tuple[Stem, ...], Field(strict=False)] = ()
    """What makes patches of frames of sound; empty: one product over the colours of a patch's pixels."""
    merge: Annotated[int, Field(gt=0, le=64)] = 1
    """Side of the square of patches that becomes one token."""
    pooled: Annotated[int, Field(gt=0, le=64)] = 1
    """Patches whose mean, or join, is one token."""
    window: Sizes = 0
    """Patches of the side of a window that layers attend in; 0: layers see the whole sequence."""
    full_layers: Sizes = 0
    """Layers that see the whole sequence beside those with windows."""
    projections: Annotated[tuple[Projection, ...], Field(strict=False)] = ()
    stacked: Annotated[tuple[Projection, ...], Field(strict=False)] = ()
    """Linear layers that also read merged outputs of ``taps`` inner layers (DeepStack)."""
    taps: Sizes = 0
    vectors: Sizes = 0
    """Parameters of positions, norms outside of layers, layer scales and class tokens."""
    rule: AnyRule
    """Tokens of an image."""

    @model_validator(mode="after")
    def _check(self) -> "Tower":
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) does not divide by heads ({self.heads})")
        if self.rule.patch != self.patch:
            raise ValueError(f"patch ({self.patch}) is not the rule's ({self.rule.patch})")
        return self

    @property
    def hears(self) -> bool:
        """Whether it encodes sound."""
        return isinstance(self.rule, ClipFrames)

    @property
    def largest(self) -> Picture | Clip:
        """What its rule brings to the most tokens, or a clip of 30 s."""
        return Clip(30.0) if self.hears else Picture(4096, 4096)

    def shape(self, item: Picture | Clip) -> Shape:
        """Patches and tokens of a picture or a clip.

        Raises:
            InputError: the tower does not encode the one or the other.
        """
        if isinstance(self.rule, ClipFrames):
            if isinstance(item, Clip):
                return self.rule.shape(item)
        elif isinstance(item, Picture):
            return self.rule.shape(item)
        raise InputError(f"{self.name} encodes {'sound' if self.hears else 'pictures'} only", "tower")

    @property
    def patch_inputs(self) -> int:
        """Numbers of a patch: three colours of its pixels, or the window of the last layer of the stem."""
        if self.stem:
            return self.stem[-1].inputs
        return 3 * self.temporal * self.patch**2
