"""Numbers with units, for people."""

import pytest

from meshwright.reports import units


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
