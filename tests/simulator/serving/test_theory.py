"""Runs against queueing theory: closed-loop bounds, Little's law in every loop, conservation of tokens."""

from pathlib import Path

import numpy as np
import pytest

from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

PROMPT, OUTPUT = 300, 60


def run(clients, requests=400, **deployment):
    """A closed loop of equal requests, one small replica."""
    options = {"max_context": 4096, "ingest_s": 0.0, **deployment.pop("options", {})}
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "closed", "concurrency": clients},
            "input": PROMPT,
            "output": OUTPUT,
        },
        "deployment": {**deployment, "options": options},
    }
    return serve(make_serving(data, "test", Path()))


def rate(result):
    """Requests a second between the first and the last end, the start burst left out."""
    ends = np.sort(result.records.columns()["last_s"])
    tenth = len(ends) // 10
    return (len(ends) - 2 * tenth) / (ends[-tenth - 1] - ends[tenth - 1])


@pytest.mark.parametrize("clients", [1, 2, 4, 8])
def test_closed_loop_throughput_lies_between_its_bounds(clients):
    """Asymptotic bounds of one server: X(1) <= X(n) <= n X(1), and no more than all slots at once give."""
    alone, together, most = (rate(run(count)) for count in (1, clients, 128))
    assert 0.999 * alone <= together <= 1.001 * clients * alone
    assert together <= 1.02 * most


@pytest.mark.parametrize("clients", [1, 4, 32, 200])
def test_littles_law_in_a_closed_loop(clients):
    """Requests in the system = rate x time in the system: exact over a run but for its ends (5 %)."""
    result = run(clients, requests=20 * clients + 100)
    columns = result.records.columns()
    tenth = len(columns["last_s"]) // 10
    spent = (columns["last_s"] - columns["arrival_s"])[tenth:-tenth].mean()
    assert rate(result) * spent == pytest.approx(clients, rel=0.05)


def test_one_slot_serves_one_request_after_the_other():
    """With one slot, eight clients wait seven services each: D/D/1 closed, E2E = 8 x service within 1 %.

    Two clients keep the slot busy; a client alone also waits for times outside of steps between its requests.
    """
    service = 1 / rate(run(2, options={"max_sequences": 1, "asynchronous": False}))
    result = run(8, options={"max_sequences": 1, "asynchronous": False})
    columns = result.records.columns()
    e2e = (columns["last_s"] - columns["arrival_s"])[40:-40]
    assert e2e == pytest.approx(8 * service, rel=0.01)


def test_replicas_in_turn_multiply_a_closed_loop():
    one, four = rate(run(4)), rate(run(16, requests=1600, replicas=4))
    assert four == pytest.approx(4 * one, rel=0.03)


@pytest.mark.parametrize("pipeline", [1, 2])
def test_every_token_is_computed_once(pipeline):
    result = run(16, pipeline=pipeline)
    totals = result.fleet.members[0].meter.totals
    assert totals.prompt_tokens == 400 * PROMPT
    assert totals.output_tokens == 400 * OUTPUT
    assert sum(totals.gaps.values()) == 400 * (OUTPUT - 1)
