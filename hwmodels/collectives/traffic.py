"""Bytes that collectives put on the links of each level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from core.errors import UnknownNameError
from hwmodels.collectives.calibration import FAMILIES
from hwmodels.collectives.call import Floats


def traffic(
    operation: str, bytes_: ArrayLike, size: ArrayLike, stride: ArrayLike, widths: Sequence[int]
) -> Floats:
    """Return the bytes that a rank sends over each level, mean over the ranks of the group.

    The sum over levels is nccl-tests' bus bytes; reductions in switches send fewer. A ring through blocks of
    g neighbours leaves a block with one hop in g; all-reduce between d blocks goes by trees, with 2 (d - 1) /
    d of the buffer; of pairs of ranks the share (n - g) / (n - 1) leaves.

    Args:
        operation: as for ``Cluster.collective``, like the next three; these broadcast.
        bytes_: the full buffer of each rank.
        size: ranks in the group.
        stride: distance between neighbours of the group, in ranks.
        widths: devices that each level joins, innermost first.

    Returns:
        Shape (levels + 1, ...); the last row is the network.

    Raises:
        UnknownNameError: no such operation.
    """
    if operation not in FAMILIES:
        raise UnknownNameError("collective", operation, FAMILIES)
    buffer, ranks, apart = np.broadcast_arrays(
        np.asarray(bytes_, np.float64), np.asarray(size, np.float64), np.asarray(stride, np.float64)
    )
    leaving = [
        _leaving(operation, buffer, ranks, np.clip(width // apart, 1, ranks)) for width in (apart, *widths)
    ]
    leaving.append(np.zeros_like(buffer))
    return np.stack([inside - outside for inside, outside in pairwise(leaving)])


def _leaving(operation: str, buffer: Floats, ranks: Floats, members: Floats) -> Floats:
    """Bytes that a rank sends out of blocks that hold ``members`` ranks of its group, on average."""
    blocks = ranks / members
    sent = {
        "all_reduce": 2 * (blocks - 1) / ranks,
        "all_to_all": (ranks - members) / ranks,
        "send_receive": 1 / members,
        "chain": 1 / members,
    }.get(operation, (ranks - 1) / ranks / members)
    return np.where(members < ranks, buffer * sent, 0.0)
