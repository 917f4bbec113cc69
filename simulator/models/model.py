"""The architecture of a transformer: a decoder, an encoder alone, or a decoder that attends to an encoder.

``simulator.ops.counts`` counts parameters and FLOPs. Where a publication rounds or leaves out small vectors,
``stated_parameters`` keeps its own figure.
"""

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.loading import Strict
from simulator.models.linear_attention import LinearAttention
from simulator.models.numerics import Numerics
from simulator.models.parts import (
    AttentionShape,
    CheckpointFormat,
    LatentAttention,
    LayerKind,
    Layers,
    MixtureOfExperts,
    NotNegative,
    PartFormats,
    Positive,
)
from simulator.models.towers.tower import Tower

Activation = Literal["gelu", "relu", "relu2", "silu", "swiglu", "geglu"]
AttentionKind = Literal["full", "sliding", "linear", "cross", "source", "none"]
"""``cross``: full attention, then attention to the output of ``encoder``; ``source``: a layer of the encoder,
in the model that trains (`Model.stacked`)."""

CACHED: tuple[AttentionKind, ...] = ("full", "sliding", "cross")
"""Kinds of attention that keep keys and values."""
INHERITED = (
    "name",
    "family",
    "source",
    "layers",
    "hidden",
    "heads",
    "head_dim",
    "feed_forward",
    "vocabulary",
)
INHERITED += ("max_sequence", "activation", "norm", "position", "bias", "qkv_bias")
"""Fields that an encoder has from its decoder where it states none."""

GATED: frozenset[str] = frozenset({"swiglu", "geglu"})

VISION = "the vision encoder, and prompts' image tokens beyond those of the text"
"""What predictions of a vision-language model leave out."""


class Model(Strict):
    """A transformer architecture.

    ``kv_heads`` is ``heads`` where it is not given (MHA; 1 is MQA, between is GQA), ``head_dim``
    is ``hidden / heads``, and ``attention_pattern`` is full attention, or sliding where a
    ``sliding_window`` is given.
    """

    name: Annotated[str, Field(min_length=1)]
    aliases: list[str] = Field(default_factory=list)
    """Other names in published tables and in use: models of the same shape, later versions."""
    family: str = ""
    source: str = ""
    """Where the shape was published."""
    stated_parameters: Annotated[int, Field(gt=0, le=10**16)] | None = None
    """The parameter count as its publication states it, rounded as there."""
    left_out: str = ""
    """What predictions of this model leave out, in words for the user."""
    checkpoint: CheckpointFormat = "bf16"
    """Number format of the weights as their publisher released them."""
    checkpoints: dict[CheckpointFormat, list[str]] = Field(default_factory=dict)
    """Other published checkpoints by number format: names on Hugging Face."""
    draft_heads: dict[Literal["eagle", "eagle3"], list[str]] = Field(default_factory=dict)
    """Published heads that draft for the model, by kind of speculation: names on Hugging Face."""
    parts: PartFormats | None = None
    """Formats of the checkpoint's parts, where layers stay in 16 bits or formats are mixed."""
    weight_only: list[CheckpointFormat] = Field(default_factory=list)
    """Formats of the checkpoint whose products have inputs of 16 bits."""
    checkpoint_kv: Literal["fp8", "int8", "fp4"] | None = None
    """Number format of the KV cache that the checkpoint has scales for; engines take it by default."""
    checkpoint_problem: str = ""
    """Reason why the format of the checkpoint is not known; a deployment then states ``weights``."""
    fp4: Literal["nvfp4", "mxfp4"] = "nvfp4"
    """Blocks of its 4-bit floating-point weights: 16 weights share a scale, or 32 (MXFP4)."""

    layers: Layers
    hidden: Positive
    heads: Positive
    kv_heads: NotNegative = 0
    head_dim: NotNegative = 0
    feed_forward: Positive
    """Inner width of a dense MLP (for a gated one: of each half)."""
    vocabulary: Positive
    embedding_width: NotNegative = 0
    """Width of the embedding and of the output layer's input, where a product widens or narrows it (ELECTRA,
    OPT 350M); 0: ``hidden``."""
    max_sequence: Annotated[int, Field(gt=0, le=2**27)] = 2048
    """The longest sequence it was built for; the rows of a learned position table."""

    activation: Activation = "gelu"
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norms_per_layer: Positive = 2
    position: Literal["learned", "rope", "alibi", "none"] = "learned"
    tied_embeddings: bool = False
    """Whether the output layer shares the weights of the input embedding."""
    bias: bool = False
    """Whether the linear layers have biases."""
    qkv_bias: bool = False
    """Whether queries, keys and values have biases (as ``bias``, where it is not given)."""
    qk_norm: bool = False
    """Whether each query and key head is normalised."""
    causal: bool = True
    """Whether a token attends only to those before it; encoders attend to all, and write none."""
    parallel_block: bool = False
    """Whether attention and MLP read the same input and are added once (GPT-J, PaLM)."""

    value_dim: NotNegative = 0
    """Width of a value head; 0: that of a key head (``mla`` has its own)."""
    shared_values: bool = False
    """Whether full layers take values from the projection of keys (Gemma 4, DeepSeek-V4)."""
    query_rank: NotNegative = 0
    """Width of compressed queries outside of ``mla``; 0: projected directly (DeepSeek-V4)."""
    output_rank: NotNegative = 0
    """Width to which each of ``output_groups`` groups of heads is projected before the output; 0: none."""
    output_groups: Positive = 1
    sliding_attention: AttentionShape | None = None
    """Heads of sliding layers, where they differ from those of full layers."""
    feed_forwards: Annotated[tuple[Positive, ...], Field(strict=False, max_length=2**10)] = ()
    """Inner width of the MLP of each layer, where layers differ; as many as layers."""
    kv_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Entries of the KV cache for each token of a layer, mean of the layers (DeepSeek-V4 keeps one for 4 or
    128 tokens)."""
    cache_extra: Annotated[float, Field(ge=0, le=2**20)] = 0.0
    """Values of a token in the cache of a layer beside keys and values: keys of an indexer, mean of the
    layers."""
    shared_kv_layers: NotNegative = 0
    """Layers at the end that read the keys and values of earlier ones (Gemma 3n and 4)."""
    other_parameters: Annotated[int, Field(ge=0, le=10**14)] = 0
    """Parameters of parts that have no ops, such as embeddings of each layer; they take memory only."""
    encoder: "Model | None" = None
    """Encoder of the prompt, whose output every layer attends to (T5, BART, Whisper): the fields that differ
    from the decoder's. Both have one embedding."""

    mla: LatentAttention | None = None
    linear: LinearAttention | None = None
    """Linear attention or a state-space mixer, in the layers that have it."""
    attention_gate: bool = False
    """Whether a gate, projected beside the queries, multiplies the output of attention."""
    activation_limit: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Limit to which the inputs of the gated activation are clamped (gpt-oss)."""
    attention_sinks: bool = False
    """Whether the softmax of each head has a learned logit beside those of keys (gpt-oss)."""
    sliding_window: Annotated[int, Field(gt=0, le=2**27)] | None = None
    """Keys that a token of a sliding layer sees, itself included."""
    attention_pattern: Annotated[tuple[AttentionKind, ...], Field(strict=False, min_length=1)] = ("full",)
    """The kind of attention of each layer, repeated over the layers."""
    mlp_pattern: Annotated[tuple[bool, ...], Field(strict=False, min_length=1)] = (True,)
    """Whether each layer has an MLP, repeated over the layers."""
    moe: MixtureOfExperts | None = None
    mtp_layers: NotNegative = 0
    """Layers of multi-token prediction behind the last, which some frameworks train too; each passes the
    output layer once more. No parameter count has them."""
    mtp_passes: NotNegative = 0
    """Further predictions in training, each by one pass through the same block of layers (``mtp_block``)."""
    mtp_block: Annotated[tuple[NotNegative, ...], Field(strict=False)] = ()
    """Layers, counted from 0, of whose kinds that block's layers are."""

    tower: Tower | None = None
    """The vision tower beside the language model; only questions with images read it."""
    audio: Tower | None = None
    """The audio encoder beside the language model; only questions with sound read it."""
    tower_problem: str = ""
    """Reason why the file's tower cannot be read; questions with images are refused with it."""

    numerics: Numerics | None = None
    """Constants that launch files need: rotary base, norm epsilon, router; ``scales_heads`` has a cost."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: object) -> object:
        """Derive missing fields from the fields that are given."""
        if not isinstance(data, dict):
            return data
        filled = dict(data)
        heads, hidden, mla = data.get("heads"), data.get("hidden"), data.get("mla")
        if heads is not None:
            filled.setdefault("kv_heads", heads)
        filled.setdefault("qkv_bias", data.get("bias", False))
        if isinstance(mla, dict) and "head_dim" not in data:
            parts = mla.get("qk_nope_head_dim"), mla.get("qk_rope_head_dim")
            filled["head_dim"] = sum(p for p in parts if isinstance(p, int))
        elif isinstance(heads, int) and isinstance(hidden, int) and heads > 0 and "head_dim" not in data:
            if hidden % heads:
                raise ValueError(f"hidden ({hidden}) does not divide by heads ({heads}); give head_dim")
            filled["head_dim"] = hidden // heads
        if data.get("sliding_window") is not None:
            filled.setdefault("attention_pattern", ("sliding",))
        if isinstance(encoder := data.get("encoder"), dict):
            shared = {name: data[name] for name in INHERITED if name in data}
            filled["encoder"] = {**shared, "causal": False, "tied_embeddings": True, **encoder}
            filled = {"attention_pattern": ("cross",), "norms_per_layer": 3, **filled}
        return filled

    @model_validator(mode="after")
    def _check(self) -> "Model":
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) does not divide by kv_heads ({self.kv_heads})")
        if self.head_dim < 1:
            raise ValueError(f"head_dim must be positive, found {self.head_dim}")
        if self.mla and self.kv_heads != self.heads:
            raise ValueError(f"with mla each head has its own key: kv_heads ({self.kv_heads}) is not heads")
        if self.mla and self.head_dim != self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim:
            raise ValueError(f"head_dim ({self.head_dim}) is not mla.qk_nope_head_dim + mla.qk_rope_head_dim")
        if "sliding" in self.attention_pattern and self.sliding_window is None:
            raise ValueError("attention_pattern has sliding layers, but sliding_window is not given")
        if ("linear" in self.attention_pattern) != (self.linear is not None):
            raise ValueError("linear is given for, and only for, linear layers in attention_pattern")
        if ("cross" in self.attention_pattern) != (self.encoder is not None):
            raise ValueError("encoder is given for, and only for, cross layers in attention_pattern")
        if self.encoder is not None and (self.encoder.causal or self.encoder.encoder):
            raise ValueError("encoder: attends to all tokens and has no encoder of its own")
        if any(kind.parts == 0 for kind in self.layer_groups):
            raise ValueError("attention_pattern and mlp_pattern leave a layer with neither attention nor MLP")
        if bool(self.mtp_passes) != bool(self.mtp_block) or (self.mtp_passes and self.mtp_layers):
            raise ValueError("mtp_passes goes with mtp_block, and without mtp_layers")
        if any(layer >= self.layers for layer in self.mtp_block):
            raise ValueError(f"mtp_block: {max(self.mtp_block)} is not one of {self.layers} layers from 0")
        if self.feed_forwards and len(self.feed_forwards) != self.layers:
            raise ValueError(f"feed_forwards has {len(self.feed_forwards)} widths for {self.layers} layers")
        if self.shared_kv_layers >= self.layers:
            raise ValueError("shared_kv_layers leaves no layer with keys of its own")
        if self.moe and any(place >= self.layers for place in self.moe.places):
            raise ValueError(f"moe.places: {max(self.moe.places)} is not one of {self.layers} layers from 0")
        if self.moe and self.moe.first_dense_layers + self.moe.every > self.layers:
            raise ValueError(
                f"moe leaves no expert layer: first_dense_layers ({self.moe.first_dense_layers}) "
                f"and every ({self.moe.every}) of {self.layers} layers"
            )
        return self

    # Shapes

    @property
    def trained_mtp_layers(self) -> int:
        """Layers that training of further predictions passes behind the last."""
        return self.mtp_layers + self.mtp_passes * len(self.mtp_block)

    @property
    def scales_heads(self) -> bool:
        """Whether the rotary embedding also scales heads."""
        scaling = self.numerics.rotary_scaling if self.numerics else None
        return scaling is not None and scaling.scales_heads

    @property
    def gated(self) -> bool:
        """Whether the MLP multiplies an activated half with a linear half."""
        return self.activation in GATED

    @property
    def v_head_dim(self) -> int:
        """Width of a value head."""
        return self.mla.v_head_dim if self.mla else self.value_dim or self.head_dim

    @property
    def query_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads (in MHA, GQA and MQA also that of all value heads)."""
        return self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of what attention hands to the output projection."""
        return self.heads * self.v_head_dim

    @property
    def kv_cache_width(self) -> int:
        """Values that the KV cache keeps per token and layer."""
        if self.mla:
            return self.mla.kv_lora_rank + self.mla.qk_rope_head_dim
        return self.kv_heads * (self.head_dim + self.v_head_dim)

    def of_kind(self, kind: LayerKind) -> "Model":
        """The model with the heads and the width that layers of a kind have."""
        update: dict[str, object] = {"feed_forward": kind.width} if kind.width else {}
        if kind.mixer == "sliding" and self.sliding_attention:
            update |= self.sliding_attention.model_dump() | {"shared_values": False, "query_rank": 0}
        return self.model_copy(update=update) if update else self

    def is_moe_layer(self, layer: int) -> bool:
        """Whether a layer (counted from 0) has experts."""
        return any(kind.experts and layer in members for kind, members in self.layer_groups.items())

    @property
    def moe_layers(self) -> int:
        """How many layers have experts."""
        return sum(len(members) for kind, members in self.layer_groups.items() if kind.experts)

    @property
    def dense_layers(self) -> int:
        """How many layers have a dense MLP."""
        return sum(
            len(members) for kind, members in self.layer_groups.items() if kind.mlp and not kind.experts
        )

    def attention_kind(self, layer: int) -> AttentionKind:
        """The kind of attention of a layer (counted from 0)."""
        return self.attention_pattern[layer % len(self.attention_pattern)]

    def layers_of_kind(self, kind: AttentionKind) -> int:
        """How many layers have that kind of attention."""
        rounds, rest = divmod(self.layers, len(self.attention_pattern))
        return rounds * self.attention_pattern.count(kind) + self.attention_pattern[:rest].count(kind)

    @property
    def layer_groups(self) -> dict[LayerKind, tuple[int, ...]]:
        """The layers of each kind (counted from 0), kinds in the order of their first layer."""
        moe = (self.moe.first_dense_layers, self.moe.every, self.moe.places) if self.moe else None
        return _layer_groups(self.layers, self.attention_pattern, self.mlp_pattern, moe, self.feed_forwards)

    @property
    def full_layers(self) -> int:
        """How many layers keep keys and values of every token, and of the encoder's output."""
        return self.layers_of_kind("full") + self.layers_of_kind("cross")

    @property
    def cached_layers(self) -> int:
        """How many layers keep keys and values."""
        return self.full_layers + self.layers_of_kind("sliding") - self.shared_kv_layers

    @property
    def decoder_only(self) -> bool:
        """Whether it writes tokens and has no encoder, as all models of measured servers."""
        return self.causal and self.encoder is None

    @property
    def longest_request(self) -> int:
        """Most tokens of a prompt and its output."""
        return self.max_sequence + (self.encoder.max_sequence if self.encoder else 0)

    @property
    def stacked(self) -> "Model":
        """The layers of the encoder in front of the decoder's, as training passes them."""
        if self.encoder is None or "source" in self.attention_pattern:
            return self
        counts = self.encoder.layers, self.layers
        kinds = ("source",) * counts[0] + ("cross",) * counts[1]
        widths = (self.encoder.feed_forward,) * counts[0] + (self.feed_forward,) * counts[1]
        fields = {"layers": sum(counts), "attention_pattern": kinds}
        return self.model_copy(update=fields | ({"feed_forwards": widths} if len(set(widths)) > 1 else {}))

    @property
    def encoder_alone(self) -> "Model":
        """The encoder with the number formats of the checkpoint; the model itself without one."""
        if self.encoder is None:
            return self
        formats = ("checkpoint", "checkpoints", "parts", "weight_only", "checkpoint_problem", "left_out")
        return self.encoder.model_copy(update={name: getattr(self, name) for name in formats})

    def norms_of(self, parts: int) -> int:
        """Norms outside attention of a layer with 1 to 3 parts, attentions and MLP: as many for each."""
        return max(self.norms_per_layer * parts // (3 if self.encoder else 2), 1)

    @property
    def norm_width(self) -> int:
        """Parameters of one norm: a scale, and in layer norm a shift."""
        return self.hidden * (2 if self.norm == "layernorm" else 1)

    @property
    def table_width(self) -> int:
        """Width of a row of the embedding and of the output layer."""
        return self.embedding_width or self.hidden

    @property
    def output_flops(self) -> int:
        """FLOPs of one token in the output layer's product."""
        return 2 * self.table_width * self.vocabulary

    @property
    def embedding_parameters(self) -> int:
        """Input embedding and learned positions."""
        rows = self.vocabulary + (self.max_sequence if self.position == "learned" else 0)
        return self.table_width * rows

    @property
    def output_parameters(self) -> int:
        """The output layer's own weights: none where they are the input embedding's."""
        return 0 if self.tied_embeddings else self.table_width * self.vocabulary


@lru_cache(maxsize=256)
def _layer_groups(
    layers: int,
    mixers: tuple[str, ...],
    mlps: tuple[bool, ...],
    moe: tuple[int, int, tuple[int, ...]] | None,
    widths: tuple[int, ...],
) -> dict[LayerKind, tuple[int, ...]]:
    """``Model.layer_groups``, cached; ``moe``: leading dense layers, period of expert layers, places."""
    groups: dict[LayerKind, list[int]] = {}
    for layer in range(layers):
        past, has_mlp = layer - (moe[0] if moe else 0), mlps[layer % len(mlps)]
        experts = moe is not None and past >= 0 and (past + 1) % moe[1] == 0
        if moe is not None and moe[2]:
            experts = layer in moe[2]
        width = widths[layer] if widths and has_mlp and not experts else 0
        kind = LayerKind(mixers[layer % len(mixers)], has_mlp and experts, has_mlp, width)
        groups.setdefault(kind, []).append(layer)
    return {kind: tuple(members) for kind, members in groups.items()}
