"""Tenants in fair shares: the bound on their difference, weights, idle tenants, and limits."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.request import Request
from tests.simulator.serving.conftest import Run

PROMPT, OUTPUT, SLOTS = 200, 100, 8


def backlog(counts, start_s=(0.0, 0.0)):
    """Requests of equal lengths, all at once; a tenant's are numbered by its priority."""
    tenants = [tenant for tenant, count in enumerate(counts) for _ in range(count)]
    times = [start_s[tenant] for tenant in tenants]
    order = np.argsort(times, kind="stable").tolist()
    return [
        Request(serial, times[index], PROMPT, OUTPUT, priority=tenants[index])
        for serial, index in enumerate(order)
    ]


def run(requests, scheduler="fair", **options):
    return Run(requests, scheduler=scheduler, max_sequences=SLOTS, scheduler_options=options)


def admitted(found, until_s):
    """Sequences of both tenants that were scheduled by a time."""
    return [
        sum(one.scheduled_s <= until_s for one in found.done if one.request.priority == tenant)
        for tenant in (0, 1)
    ]


def half(found):
    """Time at which half of the sequences are scheduled."""
    return float(np.median([one.scheduled_s for one in found.done]))


def test_backlogged_tenants_differ_by_no_more_than_the_slots_hold():
    """VTC's theorem: at most twice what all slots hold. First come first served gives all to the first."""
    requests = backlog((80, 40))
    fair, plain = run(requests), run(requests, "chunked")
    first, second = admitted(fair, half(fair))
    assert abs(first - second) <= 2 * SLOTS
    first, second = admitted(plain, half(plain))
    assert second == 0 < first


def test_service_follows_weights():
    found = run(backlog((90, 90)), weights=[1.0, 3.0])
    first, second = admitted(found, half(found))
    assert second == pytest.approx(3 * first, rel=0.25)


def test_a_tenant_that_was_idle_has_saved_nothing_up():
    found = run(backlog((120, 40), (0.0, 5.0)))
    since = [one for one in found.done if one.scheduled_s > 5.0]
    since.sort(key=lambda one: one.scheduled_s)
    first = sum(one.request.priority == 0 for one in since[:40])
    assert 20 - SLOTS <= first <= 20 + SLOTS


def test_a_limit_leaves_slots_to_others_and_idle_ones_free():
    found = run(backlog((30, 0)), most_running=[3, 8])
    starts = np.array([one.scheduled_s for one in found.done])
    ends = np.array([one.last_s for one in found.done])
    assert max(int(((starts <= at) & (ends > at)).sum()) for at in starts) == 3


def test_one_tenant_is_served_as_by_chunked():
    requests = backlog((40, 0))
    assert np.array_equal(run(requests).times, run(requests, "chunked").times)


SCENARIO = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 200,
        "arrivals": {"kind": "poisson", "rate": 200},
        "input": 500,
        "output": 100,
        "priorities": [0.9, 0.1],
    },
}


def asked(options):
    """The scenario with options of its engine."""
    return {**SCENARIO, "deployment": {"engine": "vllm-0.19", "options": options}}


def test_the_tenant_that_sends_little_waits_less():
    def p50(scheduler):
        options = {"scheduler": scheduler, "max_sequences": 16}
        scenario = asked(options)
        return serve(make_serving(scenario, "scenario", Path())).metrics.by_priority[1]["ttft_s"]["p50"]

    assert p50("fair") < 0.3 * p50("chunked")


@pytest.mark.parametrize(("name", "value"), [("weights", [1.0]), ("most_running", [1, 2, 3])])
def test_a_tenant_without_a_share_is_refused(name, value):
    options = {"scheduler": "fair", "scheduler_options": {name: value}}
    scenario = asked(options)
    with pytest.raises(InputError, match=f"2 tenants.*found {len(value)}") as caught:
        make_serving(scenario, "scenario", Path())
    assert f"scheduler_options.{name}" in str(caught.value)


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_share_of_nothing_is_refused(weight):
    options = {"scheduler": "fair", "scheduler_options": {"weights": [1.0, weight]}}
    with pytest.raises(InputError, match=r"weights\.1"):
        make_serving(asked(options), "scenario", Path())
