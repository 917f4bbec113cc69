"""Bytes that the kernels of a chunked scan read and write, counted in their source, forward and backward.

Between its kernels a scan writes chunk states and products of keys and queries to memory. Its backward pass
computes them again. Inputs that heads share count once: their other reads hit L2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]
FLOAT_BYTES = 4.0


class ScanSizes(NamedTuple):
    """Elements per token of a scan's tensors, arrays of one shape."""

    keys: Array
    """Keys of all key heads; queries are as wide."""
    wide_keys: Array
    """Keys copied to every value head."""
    values: Array
    states: Array
    """States of chunks."""
    products: Array
    """Products of keys and queries within chunks, of all key heads."""
    wide_products: Array
    """The same of all value heads."""


def mamba_bytes(sizes: ScanSizes, width: float, backward: bool) -> Array:
    """Bytes per token of Mamba-2's scan (mamba_ssm, ops/triton/ssd_combined.py at 01b717a).

    Forward: chunk states in 32 bits, state passing, products, output. Backward: products, states and passing
    again; gradients of states and their passing; gradients of inputs, B, C, products and decay.

    Args:
        sizes: elements per token.
        width: bytes of an element of the operands.
        backward: the backward pass.
    """
    keys, values, states, products = sizes.keys, sizes.values, sizes.states, sizes.products
    if backward:
        float_elements = 6.0 * states + 6.0 * products + 4.0 * keys
        return width * (11.0 * values + 11.0 * keys + 5.0 * states) + FLOAT_BYTES * float_elements
    float_elements = 2.0 * states + 2.0 * products
    return width * (3.0 * values + 4.0 * keys + 2.0 * states) + FLOAT_BYTES * float_elements


def delta_bytes(sizes: ScanSizes, width: float, backward: bool) -> Array:
    """Bytes per token of the gated delta rule (flash-linear-attention, ops/gated_delta_rule/chunk.py).

    Forward, after the norms of queries and keys: products of keys, triangular systems, their solution times
    keys and values, states, output. Backward: the solution's products and states again; gradients of
    values within chunks, of states, of queries and keys, and of the systems.

    Args:
        sizes: elements per token.
        width: bytes of an element of the operands.
        backward: the backward pass.
    """
    keys, values, states, products = sizes.wide_keys, sizes.values, sizes.states, sizes.wide_products
    if backward:
        return width * (21.0 * keys + 15.0 * values + 4.0 * states + 2.0 * products)
    elements = 7.0 * keys + 6.0 * values + 2.0 * states + 2.0 * products
    return width * elements + FLOAT_BYTES * 2.0 * products


def backward_ratio(sizes: ScanSizes, width: float, delta: Array) -> Array:
    """Bytes of the backward pass over those of the forward pass."""
    mamba, gated = (
        count(sizes, width, True) / count(sizes, width, False) for count in (mamba_bytes, delta_bytes)
    )
    return np.where(delta > 0, gated, mamba)
