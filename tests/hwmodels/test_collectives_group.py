"""Placement of groups, against enumerating every group of the job."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from hwmodels.collectives.group import place


def enumerate_groups(size, stride, blocks):
    """Return every group of a job of so many blocks, as arrays of ranks."""
    block = size * stride
    return [
        start * block + offset + stride * np.arange(size)
        for start in range(blocks)
        for offset in range(stride)
    ]


@given(
    size=st.integers(1, 24),
    stride=st.integers(1, 24),
    domain=st.sampled_from([2, 4, 8, 16, 72]),
    blocks=st.integers(1, 8),
)
@example(size=20, stride=19, domain=72, blocks=4)
def test_the_worst_group_is_covered(size, stride, domain, blocks):
    groups = enumerate_groups(size, stride, blocks)
    devices = size * stride * blocks
    placed = place(np.array([size]), np.array([stride]), (2, domain) if domain > 2 else (2,), devices)
    spanned = [len(np.unique(group // domain)) for group in groups]
    crossing = [np.unique(group // domain) for group, n in zip(groups, spanned, strict=True) if n > 1]
    assert placed.domains[0] >= max(spanned)
    if crossing:
        sharing = np.bincount(np.concatenate(crossing)).max()
        assert placed.sharing[0] >= sharing
    if size * stride % domain == 0:
        assert placed.domains[0] == max(spanned)
        assert not crossing or placed.sharing[0] == sharing
    if domain % (size * stride) == 0:
        assert placed.domains[0] == 1


def test_levels_contain_groups():
    size, stride = np.array([1, 2, 4, 2, 8, 2, 3, 16]), np.array([64, 1, 1, 4, 1, 8, 1, 1])
    placed = place(size, stride, (2, 8), 64)
    assert placed.level.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert placed.domains.tolist() == [1, 1, 1, 1, 1, 2, 2, 2]


def test_a_job_smaller_than_a_node_never_leaves_it():
    placed = place(np.array([3, 5, 6]), np.array([2, 1, 1]), (8,), 6)
    assert placed.domains.tolist() == [1, 1, 1]
