"""Tensor-parallel communication of one layer: its cost, and the exposed part."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from core.records import record
from hwmodels.collectives.cost import Cost
from simulator.layout.model_ops import slices_products
from simulator.ops import Collective, Product
from simulator.ops.elementwise import COPY
from simulator.plan import BACKWARD_OVERLAP, Plans
from simulator.pricing import price
from simulator.setting import Setting
from simulator.training.overlap import NO_TRANSFER, Transfer, contention, hidden
from simulator.training.tensor_forms import TensorForm, chosen_forms
from simulator.training.work import Priced, sum_costs, sum_seconds


@record()
class TensorTraffic:
    """Tensor-parallel traffic of a layer, and the extra time of products cut into slices.

    Seconds, shape (plans,).
    """

    forward: Transfer
    backward: Transfer
    slicing_forward: np.ndarray
    slicing_backward: np.ndarray


@record()
class _Beside:
    """Communication beside kernels: its seconds, and those that the kernels do not lose; shape (plans,)."""

    seconds: np.ndarray
    gained: np.ndarray

    def __add__(self, other: _Beside) -> _Beside:
        return _Beside(self.seconds + other.seconds, self.gained + other.gained)

    def times(self, share: np.ndarray | float) -> _Beside:
        """A share of it."""
        return _Beside(self.seconds * share, self.gained * share)

    def with_form(self, plans: np.ndarray, other: _Beside) -> _Beside:
        """The other's, for the plans that a mask names."""
        return _Beside(
            np.where(plans, other.seconds, self.seconds), np.where(plans, other.gained, self.gained)
        )

    def transfer(self, cost: Cost) -> Transfer:
        """All communication of a direction, of which this part runs beside kernels."""
        gains = np.divide(self.gained, self.seconds, out=np.ones(self.seconds.shape), where=self.seconds > 0)
        return Transfer(cost, self.seconds, 1 - gains)


@record()
class _Collective:
    """Collectives of one end of a block: seconds, and how much they slow kernels; shape (plans,)."""

    seconds: np.ndarray
    slows: np.ndarray

    def beside(self, window: np.ndarray) -> _Beside:
        """What runs beside ``window`` seconds of kernels."""
        seconds = hidden(self.seconds, window, self.slows)
        return _Beside(seconds, (1 - self.slows) * seconds)


@record()
class _Collectives:
    """Communication of attention or of the MLP.

    ``gather`` gathers its input, where the sequence is sharded; ``output`` reduces its output, ``gradient``
    the gradient of its input.
    """

    gather: _Collective
    output: _Collective
    gradient: _Collective

    @classmethod
    def of(cls, setting: Setting, plans: Plans, block: list[Priced]) -> _Collectives:
        def collective(end: str, operations: tuple[str, ...], gradient: str) -> _Collective:
            entries = [
                entry
                for entry in block
                if entry.op.gradient == gradient
                and isinstance(entry.op, Collective)
                and entry.op.end == end
                and entry.op.operation in operations
            ]
            shape = (len(plans),)
            seconds = sum_seconds(entries, shape)

            def sent() -> np.ndarray:
                return sum_costs(setting, entries, shape).bytes.sum(axis=0)

            return _Collective(seconds, contention(setting, plans.tensor, 1, seconds, sent))

        reductions = "reduce_scatter", "all_reduce"
        return cls(
            collective("input", ("all_gather",), ""),
            collective("output", reductions, ""),
            collective("input", reductions, "input"),
        )


def tensor_traffic(
    setting: Setting, plans: Plans, blocks: list[list[Priced]], passes: tuple[np.ndarray, np.ndarray]
) -> TensorTraffic:
    """Tensor-parallel traffic of a layer, forward and backward, and the exposed part.

    Without sequence parallelism each of attention and MLP all-reduces its output forward and its input
    gradient backward; with it, each gathers its input and reduce-scatters its output, and gathers once
    more backward for the weight gradient (Korthikanti et al. 2022, section 4.2.2). "backward" overlap
    runs the input-gradient reduction beside the weight-gradient product and the second gather beside the
    input-gradient product (Megatron-LM's asynchronous linear layer). "full" also cuts the products beside
    the other communication into one slice a rank (Transformer Engine user buffers, which reach one NVLink
    domain): the last slice of a product has no gather left beside it, the last slice's reduction nothing
    to run beside. Where a release slices gradients, the input-gradient reduction runs beside slices of the
    input-gradient product, and the second gather beside nothing. Attention and MLP hide their own traffic
    only. ``tensor_forms`` has the other words of ``overlap_tensor``.

    Args:
        setting: what the plans share.
        plans: the plans.
        blocks: priced ops of attention and of the MLP, where that communicates at all; together, where they
            communicate once for both.
        passes: seconds of the layer's kernels forward and backward, each of shape (plans,).
    """
    if (plans.tensor == 1).all():
        none = np.zeros(len(plans))
        return TensorTraffic(NO_TRANSFER, NO_TRANSFER, none, none)
    shape, sliced = (len(plans),), slices_products(setting, plans)
    forward, backward = (_Beside(*np.zeros((2, *shape))) for _ in range(2))
    sent: list[Priced] = []
    forms = chosen_forms(plans.overlap_tensor)
    windows = tuple(np.broadcast_to(seconds, shape) / max(len(blocks), 1) for seconds in passes)
    for block in blocks:
        sends = [entry for entry in block if entry.op.kind == "tensor"]
        sent += sends
        collectives = _Collectives.of(setting, plans, sends)
        beside = _beside(setting, plans, block, collectives, sliced)
        for form, named in forms:
            in_form = _in_form(form, setting, plans, block, collectives, windows)
            beside = tuple(old.with_form(named, new) for old, new in zip(beside, in_form, strict=True))
        forward, backward = forward + beside[0], backward + beside[1]
    ops = [entry for block in blocks for entry in block]
    longer = _slicing(setting, plans, ops, sliced, forms)
    local = _local_kernels(setting, sent, sliced)
    return TensorTraffic(
        forward.transfer(sum_costs(setting, (s for s in sent if not s.op.gradient), shape)),
        backward.transfer(sum_costs(setting, (s for s in sent if s.op.gradient), shape)),
        *(seconds + local_s for seconds, local_s in zip(longer, local, strict=True)),
    )


def _beside(
    setting: Setting, plans: Plans, block: list[Priced], sends: _Collectives, sliced: np.ndarray
) -> tuple[_Beside, _Beside]:
    """One block's communication that runs beside its products, forward and backward."""

    def product(role: str, gradient: str = "") -> np.ndarray:
        return sum_seconds(products(block, role, gradient), (len(plans),))

    others = 1 - 1 / plans.tensor
    if setting.framework.kernels.slices_gradients:
        overlapped = sends.gradient.beside(product("column", "input")).times(others)
    else:
        overlapped = sends.gather.beside(product("column", "input"))
        overlapped += sends.gradient.beside(product("column", "weight"))
    forward = sends.gather.beside(others * product("column"))
    forward += sends.output.beside(product("row")).times(others)
    in_slices = sends.gather.beside(others * product("row", "input"))
    backward = overlapped.times(sliced | (plans.overlap_tensor >= BACKWARD_OVERLAP))
    return forward.times(sliced), backward + in_slices.times(sliced)


def _in_form(
    form: TensorForm,
    setting: Setting,
    plans: Plans,
    block: list[Priced],
    sends: _Collectives,
    windows: tuple[np.ndarray, ...],
) -> tuple[_Beside, _Beside]:
    """As ``_beside``, of plans with one of ``tensor_forms``; windows are a block's share of the passes."""
    vendor = setting.cluster.device.vendor

    def product(role: str, gradient: str = "") -> np.ndarray:
        return form.share * sum_seconds(products(block, role, gradient), (len(plans),))

    def joined(*parts: _Collective) -> _Collective:
        total = sum((part.seconds for part in parts), np.zeros(len(plans)))
        lost = sum((part.seconds * form.slows(part.slows, vendor) for part in parts), np.zeros(len(plans)))
        return _Collective(total, np.divide(lost, total, out=np.zeros(len(plans)), where=total > 0))

    gather, output, gradient = sends.gather, sends.output, sends.gradient
    if form.beside == "pass":
        forward, backward = windows
        # The input is gathered again for the weight gradient, and the output's gradient for the input's.
        return joined(gather, output).beside(forward), joined(gradient, gather, gather).beside(backward)
    forward = joined(output).beside(product("row")).times(form.share)
    backward = joined(gradient).beside(product("column", "input")).times(form.share)
    if form.gathers:
        forward += joined(gather).beside(product("column"))
        backward += joined(gather).beside(product("column", "weight"))
        backward += joined(gather).beside(product("row", "input"))
    return forward, backward


def products(block: Iterable[Priced], role: str, gradient: str) -> list[Priced]:
    """Products of one role, with the kernels that accumulate weight gradients; gradient "" is forward."""
    return [
        entry
        for entry in block
        if entry.op.kind == "gemm" and entry.op.role == role and entry.op.gradient == gradient
    ]


def _local_kernels(
    setting: Setting, sent: list[Priced], sliced: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | tuple[float, float]:
    """Seconds of torch's own kernels before and after slices travel, forward and backward.

    A gather begins with a copy of a rank's slice into memory that its peers read: no product runs beside it.
    A reduction ends with a kernel that reads what all ranks sent and writes the sum (torch,
    distributed/_symmetric_memory: _pipelined_multi_all_gather_and_consume,
    _fused_matmul_reduce_scatter_impl).
    """
    if not setting.framework.kernels.slices_gradients:
        return 0.0, 0.0

    def seconds(backward: bool) -> np.ndarray:
        bytes_moved = np.zeros(np.shape(sliced))
        for op, _ in sent:
            if isinstance(op, Collective) and bool(op.gradient) is backward:
                slice_bytes = op.bytes / np.maximum(op.size, 1.0) * op.repeats
                if op.operation == "all_gather":
                    bytes_moved = bytes_moved + COPY * slice_bytes
                elif op.operation == "reduce_scatter":
                    bytes_moved = bytes_moved + op.bytes * op.repeats + slice_bytes
        return np.where(sliced & (bytes_moved > 0), setting.kernels.memory_bound(bytes_moved), 0.0)

    return seconds(False), seconds(True)


def _slicing(
    setting: Setting,
    plans: Plans,
    ops: list[Priced],
    sliced: np.ndarray,
    forms: list[tuple[TensorForm, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds by which slices are slower than whole products, forward and backward.

    Slices read all weights again and fill fewer rows of tiles. They lie on several streams, so that they
    fill the multiprocessors together, as one kernel of as many products does. Halves of a micro batch run
    one after the other.
    """
    longer = {"": np.zeros(len(plans)), "input": np.zeros(len(plans))}
    roles = ("column", ""), ("row", ""), ("row", "input")
    ways: list[tuple[tuple[tuple[str, str], ...], np.ndarray, np.ndarray]]
    ways = [(roles, sliced, np.where(sliced, plans.tensor, 1.0))]
    for form, named in forms:
        if form.halves:
            halved = named & (plans.tensor > 1)
            ways.append(((*roles, ("column", "input")), halved, np.where(halved, 2.0, 1.0)))
    for cut_roles, named, calls in ways:
        if not np.any(named & (plans.tensor > 1)):
            continue
        cut = [
            entry.op.changed(layout="forward")
            for role, gradient in cut_roles
            for entry in products(ops, role, gradient)
            if isinstance(entry.op, Product)
        ]
        one_by_one = calls if named is not sliced else 1.0
        pieces = [op.sliced(calls) if named is sliced else op.changed(m=op.m / calls) for op in cut]
        seconds = price([*cut, *pieces], setting.prices)
        for op, uncut, parts in zip(cut, seconds[: len(cut)], seconds[len(cut) :], strict=True):
            longer[op.gradient] += np.maximum(parts * one_by_one - uncut, 0.0)
    return longer[""], longer["input"]
