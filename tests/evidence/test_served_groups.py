"""Groups of measured rows, on made-up errors."""

from types import SimpleNamespace

import numpy as np
import pytest

from evidence.accuracy.served_groups import grouped, lines, load_of
from evidence.fits.served_rows import FIRST, REST


def case(**question):
    return SimpleNamespace(question=SimpleNamespace(**question), gpu="h100-sxm", engine="vllm-0.19")


@pytest.mark.parametrize(
    ("clients", "load"),
    [(1, "1"), (2, "2-16"), (16, "2-16"), (64, "17-64"), (513, "513-1023"), (1024, "1024-")],
)
def test_loads_are_ranges_of_clients_or_of_a_batch(clients, load):
    assert load_of(case(concurrency=clients)) == load_of(case(batch=clients)) == load
    assert load_of(case(rate=clients)) == ""


def test_a_line_has_the_errors_as_shipped_and_of_kernels_alone():
    rows = [
        SimpleNamespace(kind=kind, cases=(case(concurrency=4), case(concurrency=64)))
        for kind in (REST, FIRST)
    ]
    errors = [(np.array([0.1, -0.2]), np.array([0.3, -0.4])), (np.array([0.5, 0.6]), np.array([0.7, 0.8]))]
    table = list(lines(grouped(rows, errors, ["load"]), ["load"], 1))
    assert table[2].startswith(
        "| 17-64 | 1 | 20.0 / 20.0 / -20.0 | 40.0 / 40.0 / -40.0 | 60.0 / 60.0 / +60.0 |"
    )
    assert table[3].startswith(
        "| 2-16 | 1 | 10.0 / 10.0 / +10.0 | 30.0 / 30.0 / +30.0 | 50.0 / 50.0 / +50.0 |"
    )
    assert len(list(lines(grouped(rows, errors, ["load"]), ["load"], 2))) == 2
