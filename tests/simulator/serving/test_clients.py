"""Clients: gaps, users, known cache hits, servers that compile first and look at their queue now and then."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.kinds import TABLES

HEADER = "arrived_at,num_prefill_tokens,num_decode_tokens"


def columns(workload, folder=Path(), **options) -> dict[str, np.ndarray]:
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {"kind": "serving", **workload},
        "deployment": {"options": {"max_sequences": 64, "max_context": 8192, **options}},
    }
    return serve(make_serving(data, "test", folder, TABLES)).records.columns()


def closed(clients=4, requests=40, **arrivals):
    return {
        "requests": requests,
        "arrivals": {"kind": "closed", "concurrency": clients, **arrivals},
        "input": 300,
        "output": 20,
    }


def traced(tmp_path, lines, header=HEADER, **workload):
    (tmp_path / "requests.csv").write_text("\n".join([header, *lines, ""]))
    return {"requests": 1000, "trace": {"format": "plain", "path": "requests.csv"}, **workload}


def test_a_gap_lies_between_a_last_token_and_the_next_request():
    run = columns(closed(clients=1, gap=0.25))
    gaps = run["arrival_s"][1:] - run["last_s"][:-1]
    assert gaps == pytest.approx(np.full(len(gaps), 0.25), abs=1e-9)


def test_the_first_requests_wait_for_kernels_to_be_compiled():
    cold, warm = columns(closed(), compile_s=2.0), columns(closed())
    wait = cold["first_s"] - cold["arrival_s"] - (warm["first_s"] - warm["arrival_s"])
    assert wait[:4] == pytest.approx(np.full(4, 2.0), abs=1e-6)
    assert abs(wait[4:]).max() < 0.1


def test_a_server_that_seldom_looks_at_its_queue_answers_later():
    workload = {**closed(clients=16, requests=400), "output": {"kind": "uniform", "low": 50, "high": 150}}
    seldom, often = columns(workload, receive_interval=20), columns(workload)
    waits = [float(np.mean((run["first_s"] - run["arrival_s"])[16:])) for run in (seldom, often)]
    step_s = float(np.median((often["last_s"] - often["first_s"]) / (often["output"] - 1)))
    assert 3 * step_s < waits[0] - waits[1] < 15 * step_s


def test_known_hits_are_not_computed(tmp_path):
    lines = [f"{index}.0,1600,8,{hits}" for index, hits in enumerate((0, 800, 1600))]
    workload = traced(tmp_path, lines, f"{HEADER},num_cached_tokens")
    run = columns(workload, tmp_path)
    assert run["cached"].tolist() == [0, 800, 1584]
    ttft = run["first_s"] - run["arrival_s"]
    assert ttft[0] > ttft[1] > ttft[2]
    assert columns(workload, tmp_path, prefix_caching=False)["cached"].tolist() == [0, 0, 0]


def test_more_hits_than_the_prompt_has_tokens_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 2.*num_cached_tokens \(11\) exceeds the prompt"):
        columns(traced(tmp_path, ["0.0,10,2,11"], f"{HEADER},num_cached_tokens"), tmp_path)


def test_a_users_next_request_waits_for_the_answer(tmp_path):
    lines = [f"{0.001 * index},400,100" for index in range(12)]
    run = columns(traced(tmp_path, lines, users=3, user_gap=0.5), tmp_path)
    assert len(run["serial"]) == 12
    for user in range(3):
        arrival, last = run["arrival_s"][user::3], run["last_s"][user::3]
        assert arrival[1:] == pytest.approx(last[:-1] + 0.5)


def test_users_of_a_closed_loop_are_refused():
    with pytest.raises(InputError, match="open loop"):
        columns({**closed(), "users": 3})
