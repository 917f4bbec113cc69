"""Bytes of a scan's kernels, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

from hwmodels.kernels.scan_traffic import ScanSizes, backward_ratio, delta_bytes, mamba_bytes

MAMBA = ScanSizes(*(np.array(float(size)) for size in (1024, 8192, 4096, 4096, 1024, 8192)))
"""Nemotron 3 Nano: 64 heads of 64, 8 groups of 128, chunks of 128."""
DELTA = ScanSizes(*(np.array(float(size)) for size in (128, 128, 128, 256, 64, 64)))
"""One head of Qwen3-Next: keys and values of 128, chunks of 64."""


def test_the_forward_scan_moves_what_its_kernels_list():
    states, passing = 2 * (4096 + 1024) + 4 * 4096, (4 + 2) * 4096
    products, output = 2 * 2 * 1024 + 4 * 1024, 4 * 1024 + 2 * (4096 + 1024 + 4096 + 4096)
    assert float(mamba_bytes(MAMBA, 2.0, False)) == states + passing + products + output
    assert float(delta_bytes(DELTA, 2.0, False)) == 512 + 384 + 1152 + 1536 + 1536


@pytest.mark.parametrize(("sizes", "delta", "ratio"), [(MAMBA, 0.0, 3.25), (DELTA, 1.0, 2.25)])
def test_the_backward_scan_moves_more_for_states_in_32_bits(sizes, delta, ratio):
    assert float(backward_ratio(sizes, 2.0, np.array(delta))) == pytest.approx(ratio, rel=0.005)


def test_kernels_count_in_proportion_to_tensors():
    twice = ScanSizes(*(2 * size for size in MAMBA))
    assert float(mamba_bytes(twice, 2.0, True)) == 2 * float(mamba_bytes(MAMBA, 2.0, True))
