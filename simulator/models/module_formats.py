"""Formats of a checkpoint's linear layers: which stay in 16 bits, which have a format of their own.

Lists of modules (``ignore``, ``modules_to_not_convert``, ``exclude_modules``, ``quantized_layers``, targets
of ``config_groups``) name modules of the released code: in full, by a parent, by a part of the name, with
``*``, or as a regular expression behind ``re:``. `part_formats` names the model's own linear layers as
released code does, and asks the lists for the format of each.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property

from simulator.models.model import CheckpointFormat, Model
from simulator.models.parts import PartFormats

WIDE: CheckpointFormat = "bf16"
ROOTS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "backbone.layers")
"""Names of the list of layers in released code."""
NUMBERED = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d{1,4})(?:\.(.*))?$")
MOST_PATTERNS = 4096
"""Expressions and parts of names in a list that are evaluated. Full names are looked up, however many:
MiniMax-M3-NVFP4 names each expert's products, 22,422 in all."""
SAFE_PATTERN = re.compile(r"[\w.\-\\^$*+?|()\[\]:!<=, {}]{1,200}")
RISKY = re.compile(r"[*+}]\)?[*+{]|\)[*+{]")
"""Repetitions of a repetition, whose matching may take exponential time."""
MOST_WILDCARDS = 3
OUTPUT = ("lm_head", "output_layer", "embed_out")


@dataclass(frozen=True)
class Linear:
    """A linear layer of a model: part, kind of mixer, spellings below its layer, and number of weights."""

    part: str
    mixer: str
    names: tuple[str, ...]
    weights: int


def _spelled(parents: str, *leaves: str) -> tuple[str, ...]:
    return tuple(f"{parent}.{leaf}" for parent in parents.split() for leaf in leaves)


ATTENTION = "self_attn attention attn self_attention mixer"
MLP = "mlp feed_forward mixer block_sparse_moe"
SHARED = "mlp.shared_experts mlp.shared_expert block_sparse_moe.shared_experts mixer.shared_experts"
ROUTED = "mlp.experts block_sparse_moe.experts feed_forward.experts mixer.experts"
BESIDE = "experts moe.experts"
"""Routed experts of layers whose dense MLP is a module beside them (Gemma 4)."""
ROUTER = re.compile(r"(?:^|\.)layers\.[\d*]+\.router")
"""A router that is a module of the layer, not of its MLP: its experts are, too."""


def _attention(model: Model) -> Iterator[Linear]:
    """Projections of an attention layer."""
    hidden = model.hidden
    output = Linear("attention", "cached", _spelled(ATTENTION, "o_proj"), model.value_width * hidden)
    if (mla := model.mla) is None:
        sizes = {"q_proj": model.query_width, "k_proj": model.kv_width, "v_proj": model.kv_width}
        for leaf, width in sizes.items():
            yield Linear("attention", "cached", _spelled(ATTENTION, leaf, "qkv_proj"), hidden * width)
        yield output
        return
    if mla.q_lora_rank:
        names = _spelled(ATTENTION, "q_a_proj", "fused_qkv_a_proj")
        yield Linear("attention", "cached", names, hidden * mla.q_lora_rank)
        names = _spelled(ATTENTION, "q_b_proj")
        yield Linear("attention", "cached", names, mla.q_lora_rank * model.query_width)
    else:
        yield Linear("attention", "cached", _spelled(ATTENTION, "q_proj"), hidden * model.query_width)
    compressed = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    yield Linear(
        "attention", "cached", _spelled(ATTENTION, "kv_a_proj_with_mqa", "fused_qkv_a_proj"), compressed
    )
    heads = model.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield Linear("attention", "cached", _spelled(ATTENTION, "kv_b_proj"), mla.kv_lora_rank * heads)
    yield output


def _linear_attention(model: Model) -> Iterator[Linear]:
    """Projections of a layer of linear attention or of a state-space mixer."""
    if (mixer := model.linear) is None:
        return
    parents, hidden = "linear_attn mixer mamba", model.hidden
    sizes = {
        "in_proj_qkv": mixer.channels,
        "in_proj_z": mixer.value_width,
        "in_proj_ba": mixer.heads * mixer.head_gates,
    }
    more = {"in_proj_qkv": ("in_proj_qkvz",), "in_proj_z": ("in_proj_qkvz",), "in_proj_ba": ("in_proj_b",)}
    for leaf, width in sizes.items():
        names = _spelled(parents, leaf, *more[leaf], "in_proj")
        yield Linear("attention", "linear", names, hidden * width)
    yield Linear("attention", "linear", _spelled(parents, "out_proj"), mixer.value_width * hidden)


def _mlp(model: Model, part: str, parents: str, width: int, hidden: int) -> Iterator[Linear]:
    """Products of a gated or plain MLP."""
    leaves: dict[str, tuple[str, ...]] = {"up_proj": ("up_proj", "gate_up_proj", "w3", "fc1")}
    leaves |= {"down_proj": ("down_proj", "w2", "fc2")}
    if model.gated:
        leaves["gate_proj"] = ("gate_proj", "gate_up_proj", "w1")
    for spellings in leaves.values():
        yield Linear(part, "", _spelled(parents, *spellings), hidden * width)


def linears(model: Model, routed: str = ROUTED) -> dict[int, list[Linear]]:
    """The linear layers of each layer (counted from 0); routers, which no method quantises, are left out.

    Args:
        model: its layers and widths.
        routed: spellings of its routed experts.
    """
    cached, scanned = list(_attention(model)), list(_linear_attention(model))
    dense = list(_mlp(model, "dense", MLP, model.feed_forward, model.hidden))
    experts: list[Linear] = []
    if moe := model.moe:
        if moe.shared_experts:
            width = moe.shared_experts * moe.shared_feed_forward
            experts += _mlp(model, "dense", SHARED, width, model.hidden)
        width = moe.experts * moe.feed_forward
        experts += _mlp(
            model, "experts", f"{routed} " + " ".join(f"{name}.0" for name in routed.split()), width,
            moe.latent or model.hidden,
        )  # fmt: skip
    listed: dict[int, list[Linear]] = {}
    for kind, members in model.layer_groups.items():
        mixer = scanned if kind.mixer == "linear" else cached if kind.mixer != "none" else []
        mlp = experts if kind.experts else dense if kind.mlp else []
        listed |= {layer: [*mixer, *mlp] for layer in members}
    return dict(sorted(listed.items()))


@dataclass
class ModuleList:
    """A list of modules that some keys name, as exact names and patterns.

    Args:
        patterns: the list.
    """

    patterns: Sequence[str]
    unread: list[str] = field(default_factory=list)
    """Patterns that are not evaluated."""

    def __post_init__(self) -> None:
        self._exact: set[tuple[int, str]] = set()
        self._loose: list[str] = []
        self._matched: list[re.Pattern[str]] = []
        for pattern in dict.fromkeys(self.patterns):
            self._add(pattern)

    def _add(self, pattern: str) -> None:
        plain = not pattern.startswith("re:") and "*" not in pattern and "?" not in pattern
        if plain and (numbered := NUMBERED.search(pattern)):
            self._exact.add((int(numbered[1]), numbered[2] or ""))
        elif len(self._loose) + len(self._matched) >= MOST_PATTERNS:
            self.unread.append(pattern)
        elif plain:
            self._loose.append(f".{pattern.removeprefix('model.')}.")
        elif pattern.startswith("re:"):
            source = pattern[3:]
            wild = source.count("*") + source.count("+")
            if not SAFE_PATTERN.fullmatch(source) or RISKY.search(source) or wild > MOST_WILDCARDS:
                self.unread.append(pattern)
                return
            try:
                self._matched.append(re.compile(source))
            except (re.error, OverflowError, RecursionError):
                self.unread.append(pattern)
        elif pattern.count("*") > MOST_WILDCARDS or len(pattern) > 200:
            self.unread.append(pattern)
        else:
            self._matched.append(re.compile(translate(pattern)))

    @cached_property
    def layers(self) -> set[int]:
        """The layers that are named in full."""
        return {layer for layer, _ in self._exact}

    def has(self, layer: int, linear: Linear) -> bool:
        """Whether one of the linear layer's names, or a parent of one, is in the list."""
        return any(self._names(layer, name) for name in linear.names)

    def has_kind(self, linear: Linear) -> bool:
        """Whether any layer's module of that name is in the list."""
        return any(self.has(layer, linear) for layer in self.layers)

    def has_output(self) -> bool:
        """Whether the output layer is in the list."""
        loose = any(f".{name}." in pattern for name in OUTPUT for pattern in self._loose)
        return loose or any(pattern.match(name) for name in OUTPUT for pattern in self._matched)

    def _names(self, layer: int, name: str) -> bool:
        steps = name.split(".")
        parents = [".".join(steps[:end]) for end in range(len(steps) + 1)]
        if any((layer, parent) in self._exact for parent in parents):
            return True
        if any(loose in f".{name}." for loose in self._loose):
            return True
        full = [f"{root}.{layer}.{parent}".rstrip(".") for root in ROOTS for parent in parents]
        return any(pattern.match(text) for pattern in self._matched for text in full)


@dataclass(frozen=True)
class ModuleFormats:
    """What a quantisation states of its modules.

    Args:
        default: format of modules that no list names.
        excluded: modules in 16 bits.
        listed: modules of a format of their own; the first list that has one decides.
    """

    default: CheckpointFormat
    excluded: ModuleList
    listed: tuple[tuple[ModuleList, CheckpointFormat], ...] = ()

    def of(self, layer: int, linear: Linear) -> CheckpointFormat:
        """The format of a layer's module."""
        if self.excluded.has(layer, linear):
            return WIDE
        for modules, module_format in self.listed:
            if modules.has(layer, linear):
                return module_format
        return self.default

    def of_kind(self, linear: Linear) -> CheckpointFormat:
        """The format of a module in any layer that the lists name."""
        for modules, module_format in self.listed:
            if modules.has_kind(linear):
                return module_format
        return self.default

    @property
    def routed(self) -> str:
        """Spellings of routed experts: inside the MLP, or beside it where lists name the router there."""
        lists = (self.excluded, *(modules for modules, _ in self.listed))
        beside = any(ROUTER.search(pattern) for modules in lists for pattern in modules.patterns)
        return BESIDE if beside else ROUTED

    @property
    def unread(self) -> list[str]:
        """Patterns that are not evaluated."""
        return [*self.excluded.unread, *(word for modules, _ in self.listed for word in modules.unread)]


LISTED_SHARE = 0.5
"""Share of the layers that a list of quantised modules names at least; a shorter one shows the pattern."""


def part_formats(model: Model, formats: ModuleFormats) -> tuple[PartFormats, str]:
    """Shares of the weights of each part by format, and a note where a list names a few layers only.

    Args:
        model: its layers and widths.
        formats: what the checkpoint states.
    """
    named = set[int]().union(*(modules.layers for modules, _ in formats.listed))
    few = bool(named) and len(named) < LISTED_SHARE * model.layers and formats.default == WIDE
    shares: dict[str, Counter[CheckpointFormat]] = defaultdict(Counter)
    kinds: dict[Linear, CheckpointFormat] = {}
    for layer, members in linears(model, formats.routed).items():
        for linear in members:
            if few and linear not in kinds:
                kinds[linear] = formats.of_kind(linear)
            module_format = kinds[linear] if few else formats.of(layer, linear)
            shares[linear.part][module_format] += linear.weights
    if few:
        _mixers_alike(kinds, shares)
    head: CheckpointFormat = WIDE
    for modules, module_format in reversed(formats.listed):
        head = module_format if modules.has_output() else head
    note = f"its list names modules of {len(named)} of {model.layers} layers; the others are taken alike"
    parts = {part: _shares(counts) for part, counts in shares.items()}
    return PartFormats(**parts, head={head: 1.0}), note if few else ""


def _mixers_alike(
    kinds: Mapping[Linear, CheckpointFormat], shares: dict[str, Counter[CheckpointFormat]]
) -> None:
    """Give attention of a kind that no named layer has the format of the kind that they have."""
    mixers: dict[str, Counter[CheckpointFormat]] = defaultdict(Counter)
    for linear, linear_format in kinds.items():
        if linear.mixer:
            mixers[linear.mixer][linear_format] += linear.weights
    silent = [mixer for mixer, counts in mixers.items() if set(counts) == {WIDE}]
    telling = [counts for mixer, counts in mixers.items() if mixer not in silent]
    if silent and telling:
        shares["attention"] = telling[0]


def _shares(counts: Counter[CheckpointFormat]) -> dict[CheckpointFormat, float]:
    total = sum(counts.values())
    return {weight_format: count / total for weight_format, count in counts.most_common()}
