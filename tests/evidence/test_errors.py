"""The runner of the accuracy commands: errors by group, and rows that are skipped."""

import pytest

from core.errors import InputError
from evidence.accuracy.errors import Errors, Spread, compared

ROWS = [{"gpu": "a", "s": 2.0}, {"gpu": "b", "s": 4.0}, {"gpu": "c", "s": 1.0}]


def predict(row):
    if row["gpu"] == "c":
        raise InputError("no device c")
    yield "step", 3.0, row["s"]
    yield "peak", 2.0, row["s"]


def test_errors_count_in_their_groups_and_refused_rows_by_reason():
    errors = compared(ROWS, predict, lambda row, figure: (figure, f"{figure}, {row['gpu']}"))
    assert errors["step"] == pytest.approx([0.5, -0.25])
    assert errors["peak"] == pytest.approx([0.0, -0.5])
    assert errors["step, b"] == pytest.approx([-0.25])
    assert errors.skipped == {"no device c": 1}


def test_figures_are_medians_of_sizes_and_signed_ones():
    spread = Spread.of([0.1, -0.2, 0.6])
    assert spread.n == 3
    assert spread[1:] == pytest.approx((0.2, 0.52, 0.6, 0.5 / 3, 0.1))


def test_the_table_has_a_line_a_group_and_a_reason():
    errors = compared(ROWS, predict)
    assert list(errors.lines("what")) == [
        "what  rows  median    p90  worst    bias  middle",
        "step     2    37.5   47.5   50.0   +12.5   +12.5",
        "peak     2    25.0   45.0   50.0   -25.0   -25.0",
        "1 skipped: no device c",
    ]
    assert [line[:4] for line in errors.lines("what", order=str)][1:3] == ["peak", "step"]
    assert list(Errors().lines()) == []
