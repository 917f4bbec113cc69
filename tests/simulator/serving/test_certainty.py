"""Programs that stop by a law, and programs scheduled as gangs."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.programs.certainty import Certainty

LAW = [0.4, 0.0, 0.2, 0.4]


def run(program, scheduler="chunked", rate=4.0):
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 4000,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": 200,
            "output": {"kind": "uniform", "low": 20, "high": 100},
            "program": {"kind": "certainty", "count": 4, "deadline": 60, **program},
        },
        "deployment": {"options": {"scheduler": scheduler, "max_sequences": 4}},
    }
    return serve(make_serving(data, "test", Path()))


def rounds(program, seed):
    lengths = iter(range(300, 100_000))
    return list(
        program.calls(
            lambda: (640, next(lengths)), lambda n: tuple(range(max(n, 0))), (), np.random.default_rng(seed)
        )
    )


def test_rounds_follow_the_law():
    program = Certainty(count=3, stop=LAW)
    found = [len(rounds(program, seed)) for seed in range(4000)]
    shares = np.bincount(found, minlength=5)[1:] / len(found)
    np.testing.assert_allclose(shares, LAW, atol=0.03)
    calls = rounds(Certainty(count=3, stop=[0, 1]), 0)
    assert [len(one) for one in calls] == [3, 3]
    assert len({(one.prompt, one.prefix) for turn in calls for one in turn}) == 1
    assert len({one.output for turn in calls for one in turn}) == 6
    assert Certainty(count=3, stop=[0, 0, 1]).depth == 3


@pytest.mark.slow
def test_programs_that_stop_send_what_the_law_leaves():
    result = run({"stop": LAW}, rate=1.0)
    # The run's limit of requests cuts the last programs.
    counts = np.bincount(result.records.columns()["program"])[1:-20]
    mean = 4 * np.average([1, 2, 3, 4], weights=LAW)
    assert counts.mean() == pytest.approx(mean, rel=0.1)


@pytest.mark.slow
def test_gangs_end_programs_sooner_where_a_queue_forms():
    tails = {
        name: run({"stop": LAW}, name, 5.0).to_dict()["program_s"]["p95"] for name in ("chunked", "gang")
    }
    assert tails["gang"] < 0.95 * tails["chunked"]


def test_a_law_of_zeros_is_refused():
    with pytest.raises(InputError, match="all zero"):
        run({"stop": [0, 0]})
