"""All-reduce kernels of serving engines: one kernel that reads the other ranks' memory, no library.

One shot: each rank reads every other's whole message. Two shots: each rank reduces its share, then gathers
the others' shares. Both begin after a barrier over the ranks.
"""

import numpy as np
from numpy.typing import NDArray

from core.loading import Strict
from core.quantities import NotNegative, Positive

Floats = NDArray[np.float64]


class RemoteReads(Strict):
    """Constants of the kernels on one kind of link."""

    start_s: Positive
    """Time of an empty one-shot kernel between two ranks, including its barrier, s."""
    rank_s: NotNegative
    """Further time per rank beyond two, s."""
    second_s: NotNegative
    """Time of the second shot's barrier, s."""
    efficiency: Positive
    """Share of the links' bandwidth that remote reads reach."""
    most_ranks: int = 8
    """Largest group for which engines use these kernels."""


def remote_read_seconds(form: RemoteReads, bandwidth: Floats | float, ranks: Floats, size: Floats) -> Floats:
    """Return seconds of the faster of the one-shot and the two-shot kernel.

    Args:
        form: constants of the links.
        bandwidth: B/s that a rank receives, summed over all other ranks.
        ranks: number of ranks in the group.
        size: bytes of each rank's message.
    """
    start = form.start_s + form.rank_s * (ranks - 2.0)
    per_byte = 1.0 / (form.efficiency * bandwidth)
    one_shot = start + (ranks - 1.0) * size * per_byte
    two_shot = start + form.second_s + 2.0 * (ranks - 1.0) / ranks * size * per_byte
    return np.minimum(one_shot, two_shot)
