"""Tensor-parallel communication of one layer: what it takes, and what products do not hide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.linear import Linears
from simulator.costs.overlap import contention
from simulator.costs.setting import Setting
from simulator.costs.work import Transfer
from simulator.plan import BACKWARD_OVERLAP, FULL_OVERLAP, Plans


@dataclass
class TensorTraffic:
    """Tensor-parallel traffic of a layer, and what cutting products into slices for it adds to them.

    Seconds, shape (plans,).
    """

    forward: Transfer
    backward: Transfer
    slicing_forward: np.ndarray
    slicing_backward: np.ndarray


@dataclass
class _Collectives:
    """What attention or MLP communicates, seconds of each collective, shape (plans,).

    ``gather`` brings its input together, where the sequence is sharded; ``output`` reduces what it writes,
    ``gradient`` the gradient of its input. ``sliced`` says whether products are cut beside them.
    """

    gather: np.ndarray
    output: np.ndarray
    gradient: np.ndarray
    sliced: np.ndarray

    @classmethod
    def of(cls, setting: Setting, plans: Plans) -> _Collectives:
        sequence = plans.sequence_parallel.astype(bool)
        sliced = (plans.overlap_tensor == FULL_OVERLAP) & sequence & (plans.tensor <= setting.cluster.domain)
        elements = setting.tokens(plans) * setting.model.hidden
        # What products read travels as they read it; user buffers reduce the outputs of fp8 products in 8
        # bits too (NeMo, tp_overlap_configs/userbuffers.py: fp8_buf).
        size, operand = elements * setting.width, elements * setting.operand_width
        gather, gradient = gather_sequence(setting, plans, operand), reduce_partial(setting, plans, size)
        output = np.where(sliced, reduce_partial(setting, plans, operand), gradient)
        return cls(gather, output, gradient, sliced)


def gather_sequence(setting: Setting, plans: Plans, size: np.ndarray) -> np.ndarray:
    """Seconds to bring ``size`` bytes of activations together, none where the sequence is whole; (plans,)."""
    gather = setting.cluster.collective("all_gather", size, plans.tensor, 1)
    return np.where(plans.sequence_parallel, gather, 0.0)


def reduce_partial(setting: Setting, plans: Plans, size: np.ndarray) -> np.ndarray:
    """Seconds to add up ``size`` bytes of partial results, into the sequence's shards if any; (plans,)."""
    scatter = setting.cluster.collective("reduce_scatter", size, plans.tensor, 1)
    whole = setting.cluster.collective("all_reduce", size, plans.tensor, 1)
    return np.where(plans.sequence_parallel, scatter, whole)


def tensor_traffic(setting: Setting, plans: Plans, blocks: list[list[Linears]]) -> TensorTraffic:
    """Tensor-parallel traffic of a layer, forward and backward, and what products do not hide.

    Without sequence parallelism each of attention and MLP all-reduces its output forward and its input
    gradient backward; with it, each gathers its input and reduce-scatters its output, and gathers once
    more backward for the weight gradient (Korthikanti et al. 2022, section 4.2.2). "backward" overlap
    runs the input-gradient reduction beside the weight-gradient product and the second gather beside the
    input-gradient product (Megatron-LM's asynchronous linear layer). "full" also cuts the products beside
    the other communication into one slice a rank (Transformer Engine user buffers, which reach one NVLink
    domain): the last slice of a product has no gather left beside it, the last slice's reduction nothing
    to run beside. Attention and MLP hide their own traffic only.

    Args:
        setting: what the plans share.
        plans: the plans.
        blocks: the sharded linear layers of attention and of the MLP; together, where they communicate once
            for both.
    """
    each = _Collectives.of(setting, plans)
    forward = len(blocks) * (each.gather + each.output)
    backward = len(blocks) * (2 * each.gather + each.gradient)
    hidden_forward, hidden_backward = np.zeros((2, len(plans)))
    for linears in blocks:
        beside_forward, beside_backward = _beside(plans, linears, each)
        hidden_forward += beside_forward
        hidden_backward += beside_backward
    kept = 1 - contention(setting)
    return TensorTraffic(
        Transfer(forward, forward - kept * hidden_forward),
        Transfer(backward, backward - kept * hidden_backward),
        *_slicing(plans, [linears for block in blocks for linears in block], each.sliced),
    )


def _beside(plans: Plans, linears: list[Linears], each: _Collectives) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of one block's communication that run beside its products, forward and backward."""

    def product(role: str, kind: str) -> np.ndarray:
        return sum((part.seconds(role, kind) for part in linears), np.zeros(len(plans)))

    others = 1 - 1 / plans.tensor
    whole = np.minimum(each.gather, product("column", "dgrad"))
    whole += np.minimum(each.gradient, product("column", "wgrad"))
    forward = np.minimum(each.gather, others * product("column", "forward"))
    forward += others * np.minimum(each.output, product("row", "forward"))
    backward = whole + np.minimum(each.gather, others * product("row", "dgrad"))
    return np.where(each.sliced, forward, 0.0), np.select(
        [each.sliced, plans.overlap_tensor >= BACKWARD_OVERLAP], [backward, whole], 0.0
    )


def _slicing(plans: Plans, linears: list[Linears], sliced: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds by which slices are slower than whole products, forward and backward."""
    forward, backward = np.zeros((2, len(plans)))
    if np.any(sliced & (plans.tensor > 1)):
        slices = np.where(sliced, plans.tensor, 1)
        for part in linears:
            forward += part.slicing("column", "forward", slices) + part.slicing("row", "forward", slices)
            backward += part.slicing("row", "dgrad", slices)
    return forward, backward
