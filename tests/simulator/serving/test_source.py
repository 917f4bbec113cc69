"""Requests of a workload as arrays and one by one."""

import pytest

from core.errors import InputError
from simulator.serving.workload.serving import Serving
from simulator.serving.workload.source import Source

LENGTHS = {
    "input": {"kind": "lognormal", "median": 850, "sigma": 0.9, "most": 4000},
    "output": {"kind": "lognormal", "median": 150, "sigma": 0.8, "most": 1000},
}
DRAWN = {"arrivals": {"kind": "poisson", "rate": 4.0}, **LENGTHS}
ROWS = [f"{0.5 * number},{100 + number},{10 + number % 7}" for number in range(50)]
WORKLOADS = {
    "drawn": DRAWN,
    "short of a block": {**DRAWN, "requests": 10},
    "prefixes": {**DRAWN, "prefix": {"tokens": 512, "groups": 300}},
    "priorities": {**DRAWN, "priorities": [1, 3]},
    "bursts": {**DRAWN, "arrivals": {"kind": "gamma", "rate": 4.0, "cv": 2.0}},
    "trace": {"trace": {"format": "plain", "path": "trace.csv"}},
    "trace at a rate": {
        "trace": {"format": "plain", "path": "trace.csv"},
        "arrivals": {"kind": "poisson", "rate": 4.0},
    },
}


def source(folder, workload, longest=10_000):
    (folder / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *ROWS]))
    return Source(
        Serving.model_validate({"kind": "serving", "requests": 9000, **workload}), 3, folder, longest
    )


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_arrays_hold_the_requests_that_come_one_by_one(tmp_path, workload):
    one_by_one = [each._replace(due_s=float("inf")) for each in source(tmp_path, workload).requests()]
    columns = source(tmp_path, workload).columns()
    assert one_by_one
    assert list(columns.unpacked()) == one_by_one


@pytest.mark.parametrize("workload", [WORKLOADS["drawn"], WORKLOADS["trace"]])
def test_a_request_longer_than_the_context_is_refused_either_way(tmp_path, workload):
    with pytest.raises(InputError) as told:
        list(source(tmp_path, workload, longest=150).requests())
    with pytest.raises(InputError) as asked:
        source(tmp_path, workload, longest=150).columns()
    assert str(asked.value) == str(told.value)
