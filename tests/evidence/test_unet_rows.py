"""Measured U-Nets: every row is predicted, and none is off by more than half."""

import pytest

from evidence.accuracy.unet_rows import measured_rows, ratio


@pytest.mark.parametrize("row", measured_rows(), ids=lambda row: f"{row['source']} {row['library']}")
def test_a_measured_image_is_predicted_within_half(row):
    assert 1 / 1.8 < ratio(row) < 1.8
