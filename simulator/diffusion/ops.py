"""A call of a diffusion transformer as a list of ops: blocks over patches and text, on one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from core.records import record
from simulator.diffusion.models import BlockGroup, DiffusionModel
from simulator.ops.op import Attention, Collective, MemoryBound, Op, Product, Size

WIDTH = 2.0
"""Bytes of a number: pipelines run in 16 bits."""

PASSES: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        # (passes of 16-bit elements and launches in eager mode, passes when compiled)
        "modulate": (6.0, 4.0, 2.0),  # norm, product with 1 + scale, sum with shift
        "gate": (5.0, 2.0, 3.0),  # product with the gate, sum with the residual
        "residual": (3.0, 1.0, 3.0),
        "norm": (2.0, 1.0, 2.0),
        "head_norm": (14.0, 7.0, 2.0),  # RMSNorm through 32 bits (diffusers, normalization.py)
        "rotary": (16.0, 8.0, 2.0),  # apply_rotary_emb in 32 bits (diffusers, embeddings.py)
        "activation": (2.0, 1.0, 2.0),
        "gated": (5.0, 2.0, 3.0),
        "join": (2.0, 3.0, 2.0),
        "heads": (2.0, 1.0, 2.0),
        "merge": (11.0, 10.0, 6.0),  # a block's output into that of a ring (yunchang, ring/utils.py)
        "exchanged": (4.0, 2.0, 4.0),  # copies before and behind an all-to-all
        "stale": (2.0, 1.0, 2.0),  # a copy of all keys that are read (distrifuser, pp/attn.py: torch.cat)
        # Linear attention in 32 bits (diffusers, SanaLinearAttnProcessor2_0).
        "linear_queries": (12.0, 6.0, 5.0),
        "linear_keys": (18.0, 6.0, 7.0),
    }
)
"""Elementwise kernels between products, per element of the tensor that they pass over."""


@record()
class TransformerCall:
    """One call of the transformer on one rank.

    Attributes:
        model: the architecture.
        samples: images of the call; a call with guidance has two for a prompt.
        tokens: patches of a sample, over all ranks.
        ulysses, ring, patches: ranks among which a sample's patches are divided.
        conditioning: share of the other ranks' stale keys that a rank reads.
        compiled: whether elementwise kernels are joined.
        attention: version of the attention kernels.
        dtype: of the products.
    """

    model: DiffusionModel
    samples: float
    tokens: float
    ulysses: float = 1.0
    ring: float = 1.0
    patches: float = 1.0
    conditioning: float = 1.0
    compiled: bool = False
    attention: str = "flash-2"
    dtype: str = "bf16"

    @property
    def ranks(self) -> float:
        """Ranks among which patches are divided."""
        return self.ulysses * self.ring * self.patches

    @property
    def rows(self) -> float:
        """Patches of all samples on this rank."""
        return self.samples * self.tokens / self.ranks

    @property
    def text(self) -> float:
        """Tokens of the text of all samples; every rank computes them."""
        return self.samples * self.model.text_tokens


def _product(call: TransformerCall, name: str, m: Size, n: float, k: float, bias: bool = True) -> Product:
    parameters = n * k + (n if bias else 0.0)
    return Product(name=name, m=m, n=n, k=k, dtype=call.dtype, parameters=parameters)


def _kernel(call: TransformerCall, name: str, form: str, elements: Size, times: float = 1.0) -> MemoryBound:
    eager, launches, joined = PASSES[form]
    passes = joined if call.compiled else eager
    return MemoryBound(
        name=name,
        kind="elementwise",
        bytes=WIDTH * passes * elements,
        launches=times * (1.0 if call.compiled else launches),
        starts=times * (1.0 if call.compiled else launches),
        repeats=1.0,
    )


def _attention(call: TransformerCall, name: str, queries: float, keys: float, heads: float) -> Attention:
    model = call.model
    return Attention(
        name=name,
        sequences=call.samples,
        queries=queries,
        keys=keys,
        heads=heads,
        kv_heads=heads * _kept(model),
        head_dim=model.head_dim,
        v_head_dim=model.head_dim,
        causal=False,
        dtype=call.dtype,
        version=call.attention,
    )


def _kept(model: DiffusionModel) -> float:
    """Heads of keys and values over those of queries."""
    return (model.kv_heads or model.heads) / model.heads


def _exchanged(call: TransformerCall, name: str, rows: float) -> Iterator[Op]:
    """All-to-all of queries, keys, values and outputs (Ulysses)."""
    if call.ulysses > 1:
        mean = (1.0 + _kept(call.model)) / 2.0
        size = WIDTH * rows * mean * call.model.hidden
        yield Collective(
            name=f"{name}.all_to_all",
            kind="ulysses",
            operation="all_to_all",
            bytes=size,
            size=call.ulysses,
            launches=4.0,
            repeats=4.0,
        )
        yield _kernel(call, f"{name}.exchanged", "exchanged", 4 * rows * mean * call.model.hidden, 4.0)


def self_attention(call: TransformerCall, name: str, text: float, read: float = 0.0) -> Iterator[Op]:
    """Attention of the patches of every sample over each other, and over ``text`` tokens of each.

    Args:
        call: of one rank.
        name: of its ops.
        text: tokens of a sample that attend too.
        read: tokens of a sample whose keys and values alone are there.
    """
    model = call.model
    heads = model.heads / call.ulysses
    sequence = call.tokens + text
    queries, keys = sequence / call.ring, (sequence + read) / call.ring
    if call.patches > 1:
        others = call.conditioning * call.tokens * (1.0 - 1.0 / call.patches)
        queries = call.tokens / call.patches + text
        keys = queries + others + read
    yield from _exchanged(call, name, call.rows)
    rounds = call.ring
    yield _attention(call, name, queries, keys, heads).changed(repeats=rounds, launches=rounds)
    size = 2 * WIDTH * call.samples * call.tokens * _kept(model) * model.hidden / call.ulysses
    if call.ring > 1:
        yield _ring(call, name, size)
        merged = call.samples * queries * model.hidden / call.ulysses
        yield _kernel(call, f"{name}.merge", "merge", rounds * merged, rounds)
    if call.patches > 1:
        # All patches are joined, whatever share of them is read then (xiuyuz/pcpp, modules/pp/attn.py).
        joined = 2 * call.samples * (sequence + read) * model.hidden
        yield _kernel(call, f"{name}.stale.joined", "stale", joined)
        yield Collective(
            name=f"{name}.stale",
            kind="stale",
            operation="all_gather",
            bytes=call.conditioning * size,
            size=call.patches,
        )


def _ring(call: TransformerCall, name: str, size: float) -> Collective:
    """Keys and values of ``size`` bytes, passed on by the ranks of a ring."""
    return Collective(
        name=f"{name}.ring",
        kind="ring",
        operation="all_gather",
        bytes=size,
        size=call.ring,
        stride=call.ulysses,
    )


def linear_attention(call: TransformerCall, name: str) -> Iterator[Op]:
    """Softmax-free attention: keys times values, then queries times that, in 32 bits.

    A ring passes keys and values on, as with softmax: every rank multiplies those of all ranks.
    """
    model = call.model
    rows, width = call.rows, float(model.head_dim)
    elements = rows * model.hidden
    yield from _exchanged(call, name, rows)
    yield Product(
        name=f"{name}.state",
        groups=call.samples * model.heads,
        m=width + 1.0,
        n=width,
        k=rows / call.samples,
        dtype=call.dtype,
        weights=False,
    )
    yield _kernel(call, f"{name}.queries", "linear_queries", elements)
    yield _kernel(call, f"{name}.keys", "linear_keys", call.ring * elements, call.ring)
    if call.ring > 1:
        size = 2 * WIDTH * call.samples * call.tokens * model.hidden / call.ulysses
        yield _ring(call, name, size)


def _projected(call: TransformerCall, name: str, rows: float, text: float = 0.0) -> Iterator[Op]:
    """Queries, keys and values with their norms and rotations; ``text`` rows of their own weights."""
    model, h = call.model, float(call.model.hidden)
    for part, count in (("", rows), (".text", text)):
        if count:
            yield _product(call, f"{name}.qkv{part}", count, 3 * h, h).changed(launches=3.0)
            if model.qk_norm:
                yield _kernel(call, f"{name}.head_norm{part}", "head_norm", 2 * count * h, 2.0)
    if model.rope:
        yield _kernel(call, f"{name}.rotary", "rotary", 2 * rows * h, 2.0)


def _mlp(call: TransformerCall, name: str, blocks: BlockGroup, rows: float) -> Iterator[Op]:
    h, f = float(call.model.hidden), float(blocks.feed_forward)
    gates = 2 if blocks.gated else 1
    yield _product(call, f"{name}.up", rows, gates * f, h)
    if blocks.convolution:
        moved_bytes = WIDTH * 2 * rows * gates * f
        weights = gates * f * 9 + gates * f
        yield MemoryBound(
            name=f"{name}.depthwise", kind="depthwise", bytes=moved_bytes, parameters=weights, launches=3.0
        )
        yield _kernel(call, f"{name}.channels_first", "heads", 2 * rows * h, 2.0)
    yield _kernel(call, f"{name}.activation", "gated" if blocks.gated else "activation", rows * f)
    yield _product(call, f"{name}.down", rows, h, f, bias=not blocks.convolution)


def _condition(call: TransformerCall, name: str, blocks: BlockGroup) -> Iterator[Op]:
    """Scales, shifts and gates of a block, from the time step and the pooled text."""
    if blocks.modulated:
        width = blocks.modulated * float(call.model.hidden)
        yield _product(
            call, f"{name}.condition", call.samples, width, float(blocks.condition or call.model.hidden)
        )
        yield _kernel(call, f"{name}.condition.activation", "activation", call.samples * width)


def _cross(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    model, rows, h = call.model, call.rows, float(call.model.hidden)
    text_width = float(model.text_hidden or model.hidden)
    yield from _condition(call, "block", blocks)
    yield _kernel(call, "norm.1", "modulate", rows * h)
    yield from _projected(call, "attention", rows)
    if blocks.attention == "linear":
        yield from linear_attention(call, "attention")
    else:
        yield from self_attention(call, "attention", 0.0)
    yield _product(call, "attention.output", rows, h, h)
    yield _kernel(call, "gate.1", "gate", rows * h)
    yield _product(call, "cross.query", rows, h, h)
    yield _product(call, "cross.key_value", call.text, 2 * h, text_width).changed(launches=2.0)
    heads = float(blocks.heads or model.heads)
    across = _attention(call, "cross", rows / call.samples, model.text_tokens, heads)
    yield across.changed(head_dim=int(h / heads), v_head_dim=int(h / heads))
    yield _product(call, "cross.output", rows, h, h)
    yield _kernel(call, "residual", "residual", rows * h)
    yield _kernel(call, "norm.2", "modulate", rows * h)
    yield from _mlp(call, "mlp", blocks, rows)
    yield _kernel(call, "gate.2", "gate", rows * h)


def _joint(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    model, rows, text, h = call.model, call.rows, call.text, float(call.model.hidden)
    yield from _condition(call, "block", blocks)
    yield _kernel(call, "norm.1", "modulate", (rows + text) * h, 2.0)
    yield from _projected(call, "attention", rows, text)
    yield _kernel(call, "attention.join", "join", 3 * (rows + text) * h)
    yield from self_attention(call, "attention", float(model.text_tokens))
    if blocks.dual:
        yield _product(call, "second.qkv", rows, 3 * h, h).changed(launches=3.0)
        yield _kernel(call, "second.norm", "modulate", rows * h)
        yield from self_attention(call, "second", 0.0)
        yield _product(call, "second.output", rows, h, h)
        yield _kernel(call, "second.gate", "gate", rows * h)
    for part, count in (("", rows), (".text", text)):
        yield _product(call, f"attention.output{part}", count, h, h)
        yield _kernel(call, f"gate.1{part}", "gate", count * h)
        yield _kernel(call, f"norm.2{part}", "modulate", count * h)
        yield from _mlp(call, f"mlp{part}", blocks, count)
        yield _kernel(call, f"gate.2{part}", "gate", count * h)


def _shared(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    model, h = call.model, float(call.model.hidden)
    both = call.rows + call.text
    yield from _condition(call, "block", blocks)
    yield _kernel(call, "norm.1", "modulate", both * h, 2.0)
    yield _kernel(call, "join.1", "join", both * h)
    yield from _projected(call, "attention", both)
    yield from self_attention(call, "attention", float(model.text_tokens))
    yield _product(call, "attention.output", both, h, h)
    yield _kernel(call, "gate.1", "gate", both * h, 2.0)
    yield _kernel(call, "norm.2", "modulate", both * h, 2.0)
    yield _kernel(call, "join.2", "join", both * h)
    yield from _mlp(call, "mlp", blocks, both)
    yield _kernel(call, "gate.2", "gate", both * h, 2.0)


def _single(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    model, h, f = call.model, float(call.model.hidden), float(blocks.feed_forward)
    both = call.rows + call.text
    yield from _condition(call, "block", blocks)
    yield _kernel(call, "norm", "modulate", both * h)
    yield from _projected(call, "attention", both)
    yield _product(call, "mlp.up", both, (2 if blocks.gated else 1) * f, h)
    yield _kernel(call, "mlp.activation", "gated" if blocks.gated else "activation", both * f)
    yield from self_attention(call, "attention", float(model.text_tokens))
    yield _kernel(call, "join", "join", both * (h + f))
    yield _product(call, "output", both, h, h + f)
    yield _kernel(call, "gate", "gate", both * h)


def _prompted(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    """A decoder layer of a language model over patches, without a mask; no bias, norms through 32 bits."""
    model, rows, h = call.model, call.rows, float(call.model.hidden)
    width = float(model.heads * model.head_dim)
    keys = _kept(model) * width
    # Attention sees heads that need not add up to the model's width.
    wide = replace(call, model=model.model_copy(update={"hidden": model.heads * model.head_dim}))
    yield _kernel(call, "norm.1", "head_norm", rows * h)
    yield _product(call, "attention.qkv", rows, width + 2 * keys, h, bias=False).changed(launches=3.0)
    for form, times in (("head_norm", 2.0), ("rotary", 2.0)):
        yield _kernel(call, f"attention.{form}", form, rows * (width + keys), times)
    yield from self_attention(wide, "attention", 0.0, float(model.text_tokens))
    yield _product(call, "attention.output", rows, h, width, bias=False)
    yield _kernel(call, "residual.1", "residual", rows * h)
    yield _kernel(call, "norm.2", "head_norm", rows * h)
    f = float(blocks.feed_forward)
    yield _product(call, "mlp.up", rows, 2 * f, h, bias=False).changed(launches=2.0)
    yield _kernel(call, "mlp.activation", "gated", rows * f)
    yield _product(call, "mlp.down", rows, h, f, bias=False)
    yield _kernel(call, "residual.2", "residual", rows * h)


def _residual(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    """Two convolutions over the image with the time step between them; borders come from other ranks."""
    h, rows = float(call.model.hidden), call.rows
    inputs = float(blocks.inputs or h)
    yield _product(call, "time", call.samples, h, float(blocks.condition or h))
    for name, channels in (("first", inputs), ("second", h)):
        yield _kernel(call, f"{name}.norm", "modulate", rows * channels)
        yield _product(call, name, rows, h, 9.0 * channels).changed(kind="convolution", window=9.0)
    if inputs != h:
        yield _product(call, "shortcut", rows, h, inputs).changed(kind="convolution")
    yield _kernel(call, "residual", "residual", rows * h)
    if call.patches > 1:
        # One row of pixels above and below, at both convolutions.
        border = 2 * WIDTH * call.samples * call.tokens**0.5 * (inputs + h)
        yield Collective(
            name="border", kind="stale", operation="send_receive", bytes=border, size=2.0, launches=2.0
        )


def _resample(call: TransformerCall, blocks: BlockGroup) -> Iterator[Op]:
    """The convolution that halves or doubles the resolution between stages of a U-Net."""
    h = float(call.model.hidden)
    yield _product(call, "resample", call.rows, h, 9.0 * h).changed(kind="convolution", window=9.0)


BLOCKS: Mapping[str, Callable[[TransformerCall, BlockGroup], Iterator[Op]]] = MappingProxyType(
    {
        "cross": _cross,
        "joint": _joint,
        "shared": _shared,
        "single": _single,
        "prompted": _prompted,
        "residual": _residual,
        "resample": _resample,
    }
)
"""Ops of one block by kind."""


def call_ops(call: TransformerCall) -> list[Op]:
    """Ops of one call; an op's ``repeats``, ``launches`` and ``parameters`` count all blocks that run it."""
    return [*block_ops(call, call.model.blocks), *_ends(call)]


def block_ops(call: TransformerCall, groups: Iterable[BlockGroup]) -> list[Op]:
    """Ops of groups of blocks, counted as in `call_ops`."""
    ops: list[Op] = []
    for number, blocks in enumerate(groups):
        for op in BLOCKS[blocks.kind](_stage(call, blocks), blocks):
            ops.append(_times(op, blocks.count, f"{number}."))
        if blocks.skips:
            h = float(call.model.hidden)
            skip = _product(call, "skip", call.rows, h, 2 * h)
            joined = _kernel(call, "skip.join", "join", 2 * call.rows * h)
            ops += [_times(op, blocks.skips, f"{number}.") for op in (skip, joined)]
    return ops


def _stage(call: TransformerCall, blocks: BlockGroup) -> TransformerCall:
    """The call as blocks with a width or a resolution of their own see it."""
    if not blocks.hidden and blocks.shrink == 1:
        return call
    model, width = call.model, blocks.hidden or call.model.hidden
    update = {"hidden": width, "heads": width // model.head_dim}
    update["text_hidden"] = model.text_hidden or model.hidden
    return replace(call, model=model.model_copy(update=update), tokens=call.tokens / blocks.shrink**2)


def _times(op: Op, count: float, prefix: str) -> Op:
    return op.changed(
        name=prefix + op.name,
        repeats=op.repeats * count,
        launches=op.launches * count,
        parameters=op.parameters * count,
    )


def _ends(call: TransformerCall) -> Iterator[Op]:
    """Embedding of patches, time step and text; the last norm and projection."""
    model, h = call.model, float(call.model.hidden)
    patch = float(model.patch[0] * model.patch[1] * model.patch[2])
    text = float(model.text_hidden or model.hidden)
    yield _product(call, "patches", call.rows, h, patch * model.inputs)
    yield _product(call, "time.1", call.samples, h, 256.0)
    yield _product(call, "time.2", call.samples, h, h)
    if model.shared_modulation:
        yield _product(call, "condition", call.samples, model.shared_modulation * h, h)
    if model.text_width != text and all(blocks.kind != "prompted" for blocks in model.blocks):
        yield _product(call, "text", call.text, text, float(model.text_width))
    yield _kernel(call, "last.norm", "modulate", call.rows * h)
    yield _product(call, "last", call.rows, patch * model.outputs, h)


def transformer_parameters(model: DiffusionModel) -> int:
    """Parameters of the transformer."""
    return round(sum(float(op.parameters) for op in call_ops(TransformerCall(model, 1.0, 1.0))))
