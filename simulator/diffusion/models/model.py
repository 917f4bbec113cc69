"""A diffusion model: transformer over patches, text encoders, and the decoder of latents."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.loading import Strict

Width = Annotated[int, Field(gt=0, le=2**20)]
Whole = Annotated[int, Field(gt=0, le=4096)]
Sizes = Annotated[int, Field(ge=0, le=2**20)]


class BlockGroup(Strict):
    """Blocks of one kind, one after another."""

    kind: Literal["cross", "joint", "shared", "single", "prompted", "residual", "resample"]
    """cross: self-attention, then cross-attention to the text; joint: image and text with weights of their
    own attend to each other; shared: the same weights; single: the same weights, attention beside the MLP;
    prompted: the image attends to itself and to the keys that the text encoder left (Cosmos 3);
    residual: two convolutions over the image, without attention (U-Nets); resample: one, between stages."""
    count: Whole
    feed_forward: Sizes = 0
    hidden: Sizes = 0
    """Width of these blocks; 0: that of the model."""
    shrink: Whole = 1
    """Side of the square of patches that is one patch of these blocks (stages of a U-Net)."""
    inputs: Sizes = 0
    """Channels that a residual block reads, where they are not its own (skips of a U-Net)."""
    gated: bool = False
    attention: Literal["softmax", "linear"] = "softmax"
    convolution: bool = False
    """Whether the MLP has a depthwise convolution between two convolutions of one pixel (SANA)."""
    dual: bool = False
    """Whether a second attention sees the image only (SD3.5 medium)."""
    skips: Sizes = 0
    """Blocks that also read the output of an earlier block, through a linear layer (HunyuanDiT)."""
    heads: Sizes = 0
    """Heads of cross-attention, where they differ; 0: those of the model."""
    modulated: Sizes = 0
    """Vectors of the model's width that a linear layer of each block makes of the condition."""
    condition: Sizes = 0
    """Width of the condition; 0: that of the model."""

    @property
    def attends(self) -> bool:
        """Whether its blocks have attention."""
        return self.kind not in ("residual", "resample")


class TextEncoder(Strict):
    """A text encoder."""

    name: str
    layers: Whole
    hidden: Width
    heads: Width
    kv_heads: Sizes = 0
    head_dim: Width
    feed_forward: Width
    gated: bool = False
    vocabulary: Width
    tokens: Whole


class LatentTiles(Strict):
    """Parts of a latent that a decoder decodes one after the other, and that overlap: length and step."""

    frames: Annotated[tuple[Whole, Whole], Field(strict=False)]
    """Of latent frames; used wherever a video has more."""
    pixels: Annotated[tuple[Whole, Whole], Field(strict=False)]
    """Of latent rows and columns; used with `tiling` of the layout."""

    @model_validator(mode="after")
    def _overlaps(self) -> "LatentTiles":
        if any(step > length for length, step in (self.frames, self.pixels)):
            raise ValueError("a step is at most the length of a tile")
        return self


class LatentDecoder(Strict):
    """The decoder of a variational autoencoder: stages of residual blocks, each twice as wide and high."""

    channels: Annotated[tuple[Width, ...], Field(strict=False, min_length=2)]
    """Channels of its stages, those of the output first; all but the last double the resolution."""
    blocks: Whole
    """Residual blocks of a stage."""
    latent: Width
    time: Whole = 1
    """Frames that one latent frame stands for."""
    kernel: Annotated[int, Field(gt=0, le=15)] = 3
    patch: Whole = 1
    """Pixels of a side that one value of its output is (Wan 2.2's decoder of 16 pixels a side)."""
    linear_stages: Annotated[int, Field(ge=0, le=16)] | None = None
    """Innermost stages of blocks of linear attention in a deep-compression decoder (AutoencoderDC of
    diffusers); None: a decoder with group norms and an attention in its innermost stage."""
    plain: bool = False
    """No norms and no attention: three convolutions a block, one block in the last stage (TAESD)."""
    tiles: LatentTiles | None = None

    @property
    def space(self) -> int:
        """Pixels of a side that one latent pixel stands for."""
        return int(2 ** (len(self.channels) - 1)) * self.patch


class DiffusionModel(Strict):
    """A diffusion transformer with its text encoders and decoder."""

    name: Annotated[str, Field(min_length=1)]
    aliases: list[str] = Field(default_factory=list)
    source: str = ""
    stated_parameters: Annotated[int, Field(gt=0, le=10**15)] | None = None
    """Parameters of the transformer as published."""
    hidden: Width
    heads: Width
    kv_heads: Sizes = 0
    """Heads of keys and values; 0: as many as of queries."""
    head_dim: Width
    blocks: Annotated[tuple[BlockGroup, ...], Field(strict=False, min_length=1)]
    control: Annotated[tuple[BlockGroup, ...], Field(strict=False)] = ()
    """Blocks of its ControlNet, those of the U-Net's encoder; empty: none is known."""
    qk_norm: bool = False
    rope: bool = False
    patch: Annotated[tuple[Whole, Whole, Whole], Field(strict=False)] = (1, 2, 2)
    """Latent frames, rows and columns of a patch."""
    inputs: Width
    """Channels of a latent pixel."""
    outputs: Width
    text_width: Width
    """Width of the text encoder's output that the transformer reads."""
    text_tokens: Whole
    text_hidden: Width | None = None
    """Width of the text inside the transformer; default: the model's."""
    guidance: Literal["classifier-free", "embedded"] = "classifier-free"
    """classifier-free: two calls a step, with and without the prompt; embedded: one call."""
    apart: bool = False
    """Whether its pipeline runs both calls one after the other (diffusers, pipeline_wan.py,
    pipeline_qwenimage.py); false: as one batch."""
    steps: Whole = 28
    """Steps of the pipeline's default."""
    transformers: Annotated[int, Field(gt=0, le=16)] = 1
    """Transformers of these blocks that share the steps: one runs at a time, all lie in memory (Wan 2.2)."""
    shared_modulation: Sizes = 0
    """Vectors of the model's width that one linear layer makes of the condition for all blocks (FLUX.2)."""
    encoders: list[TextEncoder] = Field(default_factory=list)
    decoder: LatentDecoder

    @model_validator(mode="after")
    def _check(self) -> "DiffusionModel":
        if any(blocks.skips > blocks.count for blocks in self.blocks):
            raise ValueError("skips: more than there are blocks")
        if any(blocks.attends and not blocks.feed_forward for blocks in self.blocks):
            raise ValueError("feed_forward: blocks with attention have an MLP")
        if any(blocks.hidden % self.head_dim for blocks in self.blocks):
            raise ValueError(f"hidden of blocks: must be a multiple of head_dim ({self.head_dim})")
        return self

    @property
    def video(self) -> bool:
        """Whether its latents have frames."""
        return self.decoder.time > 1

    @property
    def layers(self) -> int:
        """Blocks with attention."""
        return sum(blocks.count for blocks in self.blocks if blocks.attends)

    @property
    def convolutional(self) -> bool:
        """Whether blocks convolve over the image, across the borders of patches."""
        return not all(blocks.attends for blocks in self.blocks)

    def latent(self, height: int, width: int, frames: int = 1) -> tuple[int, int, int]:
        """Latent frames, rows and columns; the first frame stands alone (causal decoders)."""
        space = self.decoder.space
        return 1 + math.ceil((frames - 1) / self.decoder.time), height // space, width // space

    def tokens(self, height: int, width: int, frames: int = 1) -> int:
        """Patches of one sample."""
        sides = zip(self.latent(height, width, frames), self.patch, strict=True)
        return math.prod(math.ceil(side / patch) for side, patch in sides)
