"""The parts of a transformer: kinds of layers, latent attention, mixture of experts."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from core.loading import Strict

Positive = Annotated[int, Field(gt=0, le=2**24)]
"""A width or a count; the bound keeps products of three of them inside 64 bits or in floats."""
NotNegative = Annotated[int, Field(ge=0, le=2**24)]
Layers = Annotated[int, Field(gt=0, le=2**10)]
"""The deepest transformer published has 1,000 (DeepNet, arXiv 2203.00555)."""


CheckpointFormat = Literal["bf16", "fp8", "int8", "int4", "fp4"]
"""Number formats of published weights; bf16 stands for any 16 or 32 bits."""

Shares = dict[CheckpointFormat, Annotated[float, Field(gt=0, le=1)]]
"""Share of the weights of a part in each format; the shares add up to 1."""


class PartFormats(Strict):
    """Number formats of a checkpoint's linear layers, where its parts differ."""

    attention: Shares = Field(default_factory=dict)
    """Projections of attention, linear attention and state-space mixers."""
    dense: Shares = Field(default_factory=dict)
    """Dense MLPs and shared experts."""
    experts: Shares = Field(default_factory=dict)
    """Routed experts."""
    head: Shares = Field(default_factory=dict)
    """Output layer; the embedding is in 16 bits."""

    @model_validator(mode="after")
    def _check(self) -> "PartFormats":
        for part in type(self).model_fields:
            shares = getattr(self, part)
            if shares and abs(sum(shares.values()) - 1.0) > 1e-6:
                raise ValueError(f"{part}: shares must add up to 1, found {sum(shares.values()):g}")
        return self

    def describe(self) -> str:
        """The formats in words: ``attention bf16, experts fp4 97 %, bf16 3 %``."""
        words = []
        for part in type(self).model_fields:
            shares: Shares = getattr(self, part)
            each = [name if share == 1 else f"{name} {100 * share:.3g} %" for name, share in shares.items()]
            if each:
                words.append(f"{part} {' and '.join(each)}")
        return ", ".join(words)


class LayerKind(NamedTuple):
    """Components of a layer; layers of one kind have equal cost."""

    mixer: str = "full"
    """Kind of attention: full, sliding, linear, cross, or none in a layer that is an MLP only."""
    experts: bool = False
    """Whether its MLP is a mixture of experts."""
    mlp: bool = True
    """Whether it has an MLP at all."""
    width: int = 0
    """Inner width of its dense MLP; 0: the model's."""

    @property
    def parts(self) -> int:
        """Number of components, attention (two in cross layers) and MLP: 1 to 3."""
        return (self.mixer != "none") + (self.mixer == "cross") + self.mlp


class AttentionShape(Strict):
    """Heads of the sliding layers of a model whose full layers have others."""

    heads: Positive
    """Query heads."""
    kv_heads: Positive
    """Heads of keys and values."""
    head_dim: Positive
    """Width of a query or key head."""
    value_dim: NotNegative = 0
    """Width of a value head; 0: that of a key head."""


class LatentAttention(Strict):
    """Multi-head latent attention (MLA): DeepSeek-V2, arXiv 2405.04434, section 2.1."""

    q_lora_rank: Positive | None = None
    """Width of the compressed query; none where queries are projected directly (V2-Lite)."""
    kv_lora_rank: Positive
    """Width of the compressed key and value, which is what the KV cache holds."""
    qk_nope_head_dim: Positive
    """Part of a query or key head without position."""
    qk_rope_head_dim: Positive
    """Part of a query or key head with rotary position; its key is shared by all heads."""
    v_head_dim: Positive
    """Width of a value head."""
    index_topk: Positive | None = None
    """Keys that a token attends to, chosen by an indexer (sparse attention, DeepSeek-V3.2); all without."""
    index_heads: Positive = 64
    """Query heads of the indexer; its one key head is shared by all."""
    index_head_dim: Positive = 128
    """Width of a head of the indexer."""
    index_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the layers with an indexer of their own; the others reuse the choice of the layer before."""


class MixtureOfExperts(Strict):
    """Expert layers: how many, how wide, and which layers have them."""

    experts: Positive
    """Routed experts of a layer."""
    top_k: Positive
    """Routed experts that each token visits."""
    feed_forward: Positive
    """Inner width of one routed expert."""
    latent: NotNegative = 0
    """Width of what routed experts read and write, between two projections of the layer; the hidden width
    where it is not given (LatentMoE; NVIDIA Nemotron-3 Super, 2026)."""
    shared_experts: NotNegative = 0
    """Experts that every token visits."""
    shared_feed_forward: NotNegative = 0
    """Inner width of one shared expert; a routed expert's width where it is not given."""
    first_dense_layers: NotNegative = 0
    """Layers at the start with a dense MLP."""
    every: Positive = 1
    """After those, each n-th layer has experts (1: all of them; 2: the second, the fourth, ...)."""
    places: Annotated[tuple[NotNegative, ...], Field(strict=False, max_length=2**10)] = ()
    """Layers with experts, counted from 0, where they follow no such rule; none: by the rule."""
    groups: Positive = 1
    """Groups that the experts are split into (DeepSeek-V2, arXiv 2405.04434, section 2.2.2)."""
    chosen_groups: Positive = 1
    """Groups among which a token's experts are chosen."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("shared_experts") and "shared_feed_forward" not in data:
            return data | {"shared_feed_forward": data.get("feed_forward")}
        return data

    @model_validator(mode="after")
    def _check(self) -> "MixtureOfExperts":
        if self.top_k > self.experts:
            raise ValueError(f"top_k ({self.top_k}) is more than experts ({self.experts})")
        if self.experts % self.groups:
            raise ValueError(f"groups ({self.groups}) does not divide experts ({self.experts})")
        if self.chosen_groups > self.groups:
            raise ValueError(f"chosen_groups ({self.chosen_groups}) is more than groups ({self.groups})")
        return self
