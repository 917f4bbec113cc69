"""A vision tower: layers without a mask over patches, and the projector to the language model's width."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.loading import Strict
from simulator.models.towers.rules import AnyRule, Picture, Shape

Width = Annotated[int, Field(gt=0, le=2**20)]
Sizes = Annotated[int, Field(ge=0, le=2**40)]


class Projection(Strict):
    """A linear layer over merged patches."""

    inputs: Width
    outputs: Width
    bias: bool = False


class Tower(Strict):
    """A vision tower as its ``config.json`` states it."""

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
    merge: Annotated[int, Field(gt=0, le=64)] = 1
    """Side of the square of patches that becomes one token."""
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

    def shape(self, picture: Picture) -> Shape:
        """Patches and tokens of a picture."""
        return self.rule.shape(picture)

    @property
    def patch_inputs(self) -> int:
        """Numbers of a patch: three colours of its pixels."""
        return 3 * self.temporal * self.patch**2
