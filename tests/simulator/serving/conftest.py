"""Small replicas with linear step times, and requests for them."""

from collections.abc import Sequence as Many
from pathlib import Path

import numpy as np
import pytest

from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.base import ReplicaParts
from simulator.serving.replica.guards import guard, guarding
from simulator.serving.replica.kv import PagedBlocks, PrefixBlocks
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.replica import Replica
from simulator.serving.replica.schedulers import make_scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.request import Request
from tests.simulator.serving.roofline import RooflineSteps

STEPS = RooflineSteps(stages=1, fixed_s=0.01, token_s=2e-5, kv_s=3e-8, pair_s=1e-10, busy_watts=500.0)


def make_requests(count: int, seed: int = 1, rate: float = 5.0, most: int = 3000) -> list[Request]:
    """Poisson arrivals with spread lengths."""
    random = np.random.default_rng(seed)
    times = np.cumsum(random.exponential(1 / rate, count))
    prompts, outputs = random.integers(1, most, count), random.integers(1, 200, count)
    return [
        Request(index, float(time), int(prompt), int(output))
        for index, (time, prompt, output) in enumerate(zip(times, prompts, outputs, strict=True))
    ]


class Run:
    """A replica, fed with requests and run to the end."""

    def __init__(self, requests: Many[Request], stretches: bool = True, span: int = 0, **options) -> None:
        given = {"token_budget": 512, "max_sequences": 32, "kv_blocks": 100_000, "ingest_s": 0.0, **options}
        self.options = EngineOptions(**given)
        self.done: list[Sequence] = []
        size = self.options.block_tokens
        kv = (
            PrefixBlocks(self.options.kv_blocks, size, span)
            if span
            else PagedBlocks(self.options.kv_blocks, size, self.options.prefix_caching)
        )
        self.meter = Meter(STEPS, self.options.kv_blocks)
        parts = ReplicaParts(
            self.options,
            make_scheduler(self.options.scheduler, self.options.scheduler_options),
            [kv],
            STEPS,
            self.meter,
            lambda sequence, now: self.done.append(sequence),
            stretches,
        )
        self.replica = Replica(parts)
        guard(self.replica)
        for request in requests:
            self.replica.advance(request.arrival_s)
            self.replica.submit(Sequence(request, request.arrival_s), request.arrival_s)
        self.replica.advance(float("inf"))
        self.done.sort(key=lambda sequence: sequence.request.serial)

    @property
    def times(self) -> np.ndarray:
        """First scheduled, first token and last token of each request, shape (requests, 3)."""
        return np.array([[one.scheduled_s, one.first_s, one.last_s] for one in self.done])


@pytest.fixture(autouse=True)
def guards():
    """Every run of these tests keeps blocks, slots, tokens and the order of time."""
    with guarding():
        yield


@pytest.fixture
def run_replica():
    return Run


@pytest.fixture
def requests():
    return make_requests


def conversations(**deployment):
    """Users whose histories do not fit device memory."""
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 200,
            "arrivals": {"kind": "poisson", "rate": 6},
            "input": {"kind": "uniform", "low": 100, "high": 1500},
            "output": {"kind": "uniform", "low": 10, "high": 200},
            "program": {"kind": "conversation", "turns": 4, "think": 2},
        },
        "deployment": {**deployment, "options": {"kv_blocks": 800, "max_context": 16384}},
    }
    return serve(make_serving(data, "test", Path()))
