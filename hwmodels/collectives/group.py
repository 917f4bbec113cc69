"""Placement of process groups: ranks per domain, and domains spanned.

A domain is a block of the outermost level inside the network: usually a node, a rack for NVL72.
Groups tile the job: the ranks ``offset + i * stride`` form one, and every rank belongs to one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.records import record

Ints = NDArray[np.int64]


@record()
class Group:
    """Process groups as arrays; where groups of one kind differ, the worst-placed one."""

    size: Ints
    """Ranks in the group."""
    stride: Ints
    """Distance between neighbours of the group, in ranks."""
    level: Ints
    """Index of the innermost level that contains the group; the outermost level if it leaves the domain."""
    domains: Ints
    """Domains that the group spans."""
    sharing: Ints
    """Groups of this kind that cross the boundary of a domain and so share its NICs."""

    def take(self, mask: NDArray[np.bool_]) -> Group:
        """Return some of the groups."""
        fields = (self.size, self.stride, self.level, self.domains, self.sharing)
        return Group(*(field[mask] for field in fields))


def pairs(stride: Ints, level: Ints, levels: tuple[int, ...]) -> Group:
    """Place pairs of ranks, `stride` apart, that meet on a level.

    Args:
        stride: distance between both ranks.
        level: index of the level, ``len(levels)`` for the network; of the same shape.
        levels: devices that each level joins, innermost first; the last is the domain.
    """
    return Group(
        size=np.full(stride.shape, 2),
        stride=stride,
        level=np.minimum(level, len(levels) - 1),
        domains=np.where(level < len(levels), 1, 2),
        sharing=np.minimum(stride, levels[-1]),
    )


def place(size: Ints, stride: Ints, levels: tuple[int, ...], devices: int) -> Group:
    """Place groups of `size` ranks, `stride` apart, on a job.

    Args:
        size: ranks per group.
        stride: distance between neighbours of a group, in ranks; of the same shape.
        levels: devices that each level joins, innermost first; the last is the domain.
        devices: ranks of the job, laid out densely.
    """
    block = size * stride
    level = np.zeros(size.shape, np.int64)
    inside = np.zeros(size.shape, bool)
    for width in levels:
        inside = (block <= width) & ((width % block == 0) | (devices <= width)) | (size == 1)
        level += ~inside
    domain = levels[-1]
    aligned = block % domain == 0
    # Blocks start at multiples of gcd(block, domain), groups up to stride - 1 later: take the latest start.
    grain = np.where(aligned, domain, 1)
    if not aligned.all():
        grain = np.gcd(block, domain)
    start = np.minimum(domain - grain + stride, domain) - 1
    spanned = (start + (size - 1) * stride) // domain + 1
    spanned = np.where(stride >= domain, size, np.minimum(np.maximum(spanned, 2), size))
    return Group(
        size=size,
        stride=stride,
        level=np.minimum(level, len(levels) - 1),
        domains=np.where(inside, 1, spanned),
        sharing=np.minimum(np.where(aligned, stride, 2 * stride), domain),
    )
