"""Tables: nothing is cut short, however narrow the terminal."""

import io

import pytest
from rich.console import Console

from meshwright.reports.tables import table

HEADINGS = ("by", "", "cases", "median error", "90th percentile", "what moved")
ROWS = [
    ["GPU", "a100-sxm-40gb", "9", "4.8 %", "11.5 %", "data (gradients) +1.56 s, pipeline +84.9 ms"],
    ["GPU", "a100-sxm-80gb", "52", "2.8 %", "20.7 %", ""],
    ["[b]kind[/b]", "dense", "1,076", "13.5 %", "117.9 %", "gemm -931 ms"],
]


def drawn(width: int) -> str:
    """The table as a terminal of that width shows it."""
    out = io.StringIO()
    Console(file=out, width=width).print(table(HEADINGS, ROWS, "Errors", left=2))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 190])
def test_every_cell_is_shown_and_no_line_is_too_long(width):
    text = drawn(width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    words = " ".join(text.split())
    for row in ROWS:
        for cell in row[:5]:
            assert cell in words
        for word in row[5].split():
            assert word in words
    assert lines[0].strip() == "Errors"


def test_columns_that_do_not_fit_go_below_and_repeat_the_row_names():
    text = drawn(48)
    assert text.count("a100-sxm-40gb") == text.count("a100-sxm-80gb") > 1
    assert text.count("Errors") == 1


def test_a_table_that_fits_is_one():
    assert drawn(190).count("a100-sxm-40gb") == 1
