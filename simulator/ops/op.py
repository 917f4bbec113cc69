"""Ops of a layer: kernel class and shape, work, parameters, bytes saved and bytes sent.

Forward ops are given; ``backward`` derives the backward pass. An op has no seconds: ``simulator.pricing``
computes them. Sizes broadcast to shape (cases,).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from core.records import record
from hwmodels.kernels.model import BACKWARD_FLOPS

Size = float | NDArray[np.floating]
Role = Literal["", "column", "row", "down", "expert"]
Gradient = Literal["", "input", "weight"]
Driver = Literal["tokens", "context"]
End = Literal["", "input", "output"]

FLASH_BACKWARD_LAUNCHES = 3
"""Kernels of fused attention's backward pass: the row sums, the gradients, their cast."""


@record(kw_only=True)
class Op:
    """One kernel, or several of one kind, or a collective.

    Args:
        name: its function in the model, e.g. ``query_key_value``; unique within a layer.
        kind: class under which its seconds are summed: gemm, grouped_gemm, attention, norm, copy, tensor, ...
        part: part of the layer: projections, core, mlp, routed (experts), around
            (norms and residuals), or end.
        module: product or function of the layer that it belongs to, as casts belong to their product; the
            modules of ``simulator.training.modules`` name these.
        role: of a linear layer's ops: its outputs are sharded over tensor-parallel ranks (column), its inputs
            (row), neither (down), or it is an expert's.
        launches: kernels that the host launches from Python.
        looped: further kernels that the same calls launch from a loop in C++.
        repeats: times that the kernel runs with this shape.
        parameters: weights of one rank.
        saved: bytes saved for the backward pass.
        intermediate: part of ``saved`` that recomputing the op restores: statistics or scores of a softmax.
        passing: bytes that its backward kernels allocate and free beside what is kept, where they count.
        gradient: part of the backward pass: gradient of inputs or of weights; empty: forward.
        beside: whether it serves another op: quantises its operands, or sums its gradient of a bias.
        depends_on: what its time follows when a server decodes: the tokens of a step, or their context.
        only_backward: further kernels of the backward pass, beside the derived ones.
    """

    name: str
    kind: str
    part: str = ""
    module: str = ""
    role: Role = ""
    launches: Size = 1.0
    looped: Size = 0.0
    repeats: Size = 1.0
    parameters: Size = 0.0
    saved: Size = 0.0
    intermediate: Size = 0.0
    passing: Size = 0.0
    gradient: Gradient = ""
    beside: bool = False
    depends_on: Driver = "tokens"
    only_backward: tuple[Op, ...] = ()

    @property
    def flops(self) -> Size:
        """Floating-point operations of matrix products and attention."""
        return 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the op is idle in all cases."""
        return False

    def backward(self) -> tuple[Op, ...]:
        """Ops of its backward pass."""
        return self.only_backward

    def changed(self, **values: Any) -> Self:
        """A copy with some fields replaced; takes a fifth of the time of ``dataclasses.replace``."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **values)
        return copy

    def _back(self, gradient: Gradient = "input", **values: Any) -> Self:
        """A backward copy of this op, without parameters and saved bytes."""
        return self.changed(
            parameters=0.0,
            saved=0.0,
            intermediate=0.0,
            passing=0.0,
            only_backward=(),
            gradient=gradient,
            **values,
        )


@record(kw_only=True)
class Product(Op):
    """``groups`` independent products of an m x k and a k x n matrix.

    Args:
        m: tokens per product.
        n: outputs.
        k: inputs.
        groups: independent products; experts of a rank, or heads.
        dtype: number format of the operands.
        layout: forward, dgrad or wgrad.
        weights: whether the right operand is a weight; the backward pass of two activations is two products.
        frozen_input: whether the left operand has no gradient.
        row_bytes: greatest power of 2 (up to 16) that the rows of operands are aligned to.
        window: places of a convolution's window, which share the inputs that it reads.
        in_turn: share, of the time that the products take longer one after the other than side by side,
            which they do take: 0 in one kernel, 1 in a loop on one stream.
    """

    kind: str = "gemm"
    m: Size
    n: Size
    k: Size
    groups: Size = 1.0
    dtype: str = "bf16"
    layout: Literal["forward", "dgrad", "wgrad"] = "forward"
    weights: bool = True
    frozen_input: bool = False
    row_bytes: int = 16
    window: float = 1.0
    in_turn: float = 0.0

    @property
    def flops(self) -> Size:
        """One multiply and one add per element of m x n x k."""
        return 2.0 * self.repeats * self.groups * self.m * self.n * self.k

    def backward(self) -> tuple[Op, ...]:
        """The products for the input's and the weight's gradient."""
        if not self.weights:
            both = self._back(repeats=2 * self.repeats, launches=2 * self.launches)
            return both, *self.only_backward
        wgrad = self._back("weight", m=self.n, n=self.k, k=self.m, layout="wgrad")
        if self.frozen_input:
            return wgrad, *self.only_backward
        dgrad = self._back(n=self.k, k=self.n, layout="dgrad")
        return dgrad, wgrad, *self.only_backward

    def sliced(self, slices: Size) -> Product:
        """The same product with its tokens split into slices; every slice reads the weights."""
        return self.changed(m=self.m / slices, groups=self.groups * slices)


@record(kw_only=True)
class Attention(Op):
    """Fused softmax(QK^T)V over whole sequences or chunks of them.

    Args:
        sequences: number of sequences.
        queries: new tokens per sequence.
        keys: tokens that the last query attends to.
        heads: query heads of one rank.
        kv_heads: key-value heads of one rank.
        head_dim: width of a query or key head.
        v_head_dim: width of a value head.
        causal: whether a query attends only to tokens up to its own.
        dtype: number format of the arithmetic.
        kv_dtype: number format of the cache, where it differs.
        appends: whether new keys and values are written into a cache.
        latent: whether keys and values are expanded latent vectors (multi-head latent attention).
        version: flash, flash-3, flash-torch, or the older flash-2 or flash-1.
        direction: forward or backward.
    """

    depends_on: Driver = "context"
    kind: str = "attention"
    sequences: Size
    queries: Size
    keys: Size
    heads: Size
    kv_heads: Size
    head_dim: int
    v_head_dim: int
    causal: bool = True
    dtype: str = "bf16"
    kv_dtype: str | None = None
    appends: bool = False
    latent: bool = False
    version: str = "flash"
    direction: Literal["forward", "backward"] = "forward"

    @property
    def flops(self) -> Size:
        """FLOPs of the unmasked scores."""
        seen = self.keys - (np.subtract(self.queries, 1.0) / 2 if self.causal else 0.0)
        both = 2.0 * self.heads * (self.head_dim + self.v_head_dim) * self.sequences * self.queries * seen
        return both * self.repeats * (BACKWARD_FLOPS if self.direction == "backward" else 1.0)

    def backward(self) -> tuple[Op, ...]:
        """One backward kernel, which recomputes the scores."""
        launches = FLASH_BACKWARD_LAUNCHES * self.launches
        return self._back(direction="backward", launches=launches), *self.only_backward


@record(kw_only=True)
class Decode(Op):
    """Attention of one new token per sequence over cached keys and values; it has no backward pass.

    Args:
        sequences: number of sequences.
        keys: cached tokens per sequence.
        heads: query heads of one rank.
        kv_heads: key-value heads of one rank.
        head_dim: width of a query or key head.
        v_head_dim: width of a value head.
        dtype: number format of the arithmetic.
        kv_dtype: number format of the cache, where it differs.
        latent: whether keys and values are one latent vector, read once (absorbed MLA).
    """

    depends_on: Driver = "context"
    kind: str = "decode"
    sequences: Size
    keys: Size
    heads: Size
    kv_heads: Size
    head_dim: int
    v_head_dim: int
    dtype: str = "bf16"
    kv_dtype: str | None = None
    latent: bool = False

    @property
    def flops(self) -> Size:
        """FLOPs of both products with the cache."""
        return (
            2.0 * self.repeats * self.sequences * self.heads * (self.head_dim + self.v_head_dim) * self.keys
        )


@record(kw_only=True)
class Scan(Op):
    """Linear attention over whole sequences or chunks of them (``KernelModel.linear_attention``).

    Args:
        sequences: number of sequences.
        tokens: tokens per sequence.
        heads: value heads of one rank.
        key_heads: heads of queries and keys of one rank.
        key_dim: width of a query or key head.
        value_dim: width of a value head.
        chunk: tokens per chunk of the scan.
        delta: whether states are updated by the delta rule.
        dtype: of the operands.
        direction: forward or backward.
    """

    depends_on: Driver = "context"
    kind: str = "attention"
    sequences: Size
    tokens: Size
    heads: Size
    key_heads: Size
    key_dim: int
    value_dim: int
    chunk: int
    delta: bool = False
    dtype: str = "bf16"
    direction: Literal["forward", "backward"] = "forward"

    @property
    def flops(self) -> Size:
        """FLOPs of products within chunks and with states."""
        chunk = np.minimum(self.chunk, self.tokens)
        per_token = 2.0 * chunk * (self.key_dim + self.value_dim) + 4.0 * self.key_dim * self.value_dim
        if self.delta:
            per_token = per_token + 2.0 * chunk * (2 * self.key_dim + self.value_dim) + chunk**2
        passes = BACKWARD_FLOPS if self.direction == "backward" else 1.0
        return passes * self.repeats * self.sequences * self.tokens * self.heads * per_token

    def backward(self) -> tuple[Op, ...]:
        """One backward scan, which recomputes the products within chunks."""
        return (self._back(direction="backward", launches=2 * self.launches),)


@record(kw_only=True)
class StateStep(Op):
    """Linear attention of one new token per sequence: reads, updates and writes its state.

    Args:
        sequences: number of sequences.
        heads: value heads of one rank.
        key_dim: width of a query or key head.
        value_dim: width of a value head.
        dtype: number format of the new token's operands.
    """

    depends_on: Driver = "context"
    kind: str = "decode"
    sequences: Size
    heads: Size
    key_dim: int
    value_dim: int
    dtype: str = "bf16"

    @property
    def flops(self) -> Size:
        """FLOPs of updating and reading the state."""
        return 4.0 * self.repeats * self.sequences * self.heads * self.key_dim * self.value_dim


@record(kw_only=True)
class ExpertLayer(Op):
    """Routed experts in one fused call: permutation, both grouped products, activation and sum.

    Args:
        tokens: token positions over all ranks of the expert group.
        hidden: model width.
        feed_forward: width of one expert.
        top_k: experts of a token.
        experts: experts of the layer.
        tensor: ranks over which each expert's width is sharded.
        expert_parallel: ranks over which the experts are spread.
        dtype: of the products.
        skewed: whether tokens prefer some experts.
    """

    kind: str = "grouped_gemm"
    tokens: Size
    hidden: int
    feed_forward: int
    top_k: int
    experts: int
    tensor: Size = 1.0
    expert_parallel: Size = 1.0
    dtype: str = "bf16"
    skewed: bool = False

    @property
    def flops(self) -> Size:
        """Three products of a gated expert for each copy of a token."""
        copies = self.tokens * self.top_k / self.expert_parallel
        return 6.0 * self.repeats * copies * self.hidden * self.feed_forward / self.tensor


@record(kw_only=True)
class MemoryBound(Op):
    """A kernel that reads and writes ``bytes``; zero bytes take no time.

    Args:
        bytes: read and written.
        variant: the operation, where calibrations distinguish it within its kind.
        starts: kernels that share the bytes and start one after another on the device.
        casts: elements that torch's kernels cast one by one (``hwmodels.kernels.memory_bound``).
        backward_bytes: read and written by its backward kernels.
        backward_launches: ``launches`` of the backward kernels.
        backward_looped: ``looped`` of the backward kernels; by default that of the op.
        backward_starts: ``starts`` of the backward kernels; by default that of the op.
        backward_casts: ``casts`` of the backward kernels.
    """

    bytes: Size
    variant: str = ""
    starts: Size = 1.0
    casts: Size = 0.0
    backward_bytes: Size = 0.0
    backward_launches: Size = 1.0
    backward_looped: Size | None = None
    backward_starts: Size | None = None
    backward_casts: Size = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no case reads or writes a byte."""
        bytes_moved = np.asarray(self.bytes)
        return bytes_moved.size > 0 and not bytes_moved.any()

    def backward(self) -> tuple[Op, ...]:
        """One memory-bound kernel, if the gradient moves any bytes."""
        if not np.asarray(self.backward_bytes).any():
            return self.only_backward
        back = self._back(
            bytes=self.backward_bytes,
            launches=self.backward_launches,
            looped=self.looped if self.backward_looped is None else self.backward_looped,
            starts=self.starts if self.backward_starts is None else self.backward_starts,
            casts=self.backward_casts,
        )
        return back, *self.only_backward


@record(kw_only=True)
class Collective(Op):
    """Communication inside a layer.

    Args:
        operation: name in ``Cluster.collective``.
        bytes: the full buffer of each rank.
        size: ranks of the group; 1 communicates nothing.
        stride: devices between neighbours of the group.
        speedup: speed of its library over the cluster's default library.
        least_s: seconds that its messages take at least, whatever their bytes.
        start_s: seconds of its library beside bytes and messages.
        end: where a block of sharded products has it: on their input, or on their output.
        results: bytes that its forward calls return together, where a recomputation may keep them.
        window: share of the core's kernels of the same pass beside which it may run.
    """

    launches: Size = 0.0
    operation: str
    bytes: Size
    size: Size
    stride: Size = 1.0
    speedup: Size = 1.0
    least_s: Size = 0.0
    start_s: Size = 0.0
    end: End = ""
    results: Size = 0.0
    window: Size = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether every group is a single rank."""
        return not (np.asarray(self.size) > 1).any()


def backward(ops: Iterable[Op]) -> list[Op]:
    """The backward pass of a list of forward ops, in forward order."""
    return [back for op in ops for back in op.backward()]
