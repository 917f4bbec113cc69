"""Numbers with units, for people."""

import pytest

from meshwright.reports import units
from meshwright.reports.run_bands import around
from meshwright.reports.units import significant, with_half_width


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (units.scaled(3.352e12, "B/s"), "3.35 TB/s"),
        (units.scaled(5.0, "B/s"), "5 B/s"),
        (units.counted(174.6e9), "174.6B"),
        (units.counted(8e9), "8B"),
        (units.gibibytes(80 * 2**30), "80.0 GiB"),
        (units.seconds(16.34), "16.3 s"),
        (units.seconds(0.812), "812 ms"),
        (units.seconds(5e-6), "5.00 us"),
        (units.seconds(0.0), "0"),
        (units.percent(0.1234), "12.3 %"),
        (units.signed_percent(0.1234), "+12.3 %"),
    ],
)
def test_numbers_read_well(shown, words):
    assert shown == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (21.0, "21.0"),
        (0.59, "0.590"),
        (142.3, "142"),
        (999.7, "1,000"),
        (1510.2, "1,510"),
        (0, "0"),
        (-3.9, "-3.90"),
    ],
)
def test_three_digits_with_their_zeros(value, words):
    assert significant(value) == words


@pytest.mark.parametrize(
    ("value", "half", "words"), [(23.0, 0.56, "23.0 ± 0.6"), (145, 3.4, "145 ± 3"), (1510, 0.2, "1,510")]
)
def test_half_an_interval_has_the_decimals_of_its_middle(value, half, words):
    assert with_half_width(value, half) == words


def test_millions_of_dollars():
    assert around(1.6e8, 0.5).money() == "160 M$ (80 to 240)"
    assert around(180_000, 0.14).money() == "180,000 $ (150,000 to 210,000)"
