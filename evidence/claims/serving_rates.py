"""Searches for the largest rate, or the most servers, of a paper's serving scenario within its targets.

``serving_starts.yaml`` holds the place of each answer, where tests begin the search: a run within the targets
there and beyond them one place on is what the whole search ends at. A place that is wrong costs two runs;
``python -m benchmarks.papers --write`` searches without places and stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from core.errors import InputError
from meshwright.questions.keys import set_key
from meshwright.variations.question import ScenarioRun
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

PLACES = 256
"""Of a search for the largest rate within the targets, evenly spaced in their logarithm: 1.6 % apart."""
RATES = (1 / 16, 4.0)
"""The first place and the end, over the scenario's rate."""
STARTS = Path(__file__).with_name("serving_starts.yaml")

Starts = Mapping[str, int]
"""Places by the name of the run."""


def read_starts() -> dict[str, dict[str, int]]:
    """Places where searches begin, by scenario and run."""
    return yaml.safe_load(STARTS.read_text(encoding="utf-8"))


def write_starts(places: Mapping[str, Starts]) -> None:
    """Store places by scenario and run."""
    by_scenario = {scenario: dict(sorted(runs.items())) for scenario, runs in sorted(places.items()) if runs}
    STARTS.write_text(yaml.safe_dump(by_scenario), encoding="utf-8")


def last_within(within: Callable[[int], bool], low: int, high: int, start: int | None = None) -> int:
    """The last place of ``range(low, high)`` within the targets, where all before it are too.

    Args:
        within: whether a place is within the targets.
        low: the first place, which is not tried.
        high: the end.
        start: a place to begin at.
    """
    for place in () if start is None else (start, start + 1):
        if low < place < high:
            low, high = (place, high) if within(place) else (low, place)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def rate_at(run: ScenarioRun, place: int) -> float:
    """The rate of arrivals at a place of the search, a second; 0 at the first, which is not tried."""
    low, high = (float(run.data["workload"]["arrivals"]["rate"]) * end for end in RATES)
    return low * (high / low) ** (place / PLACES) if place else 0.0


def at_rate(setting: ServingSetting, rate: float) -> ServingSetting:
    """The same at another rate of arrivals, a second."""
    arrivals = setting.serving.arrivals
    if arrivals is None:
        raise InputError("a search of rates needs arrivals", f"{setting.where}: workload.arrivals")
    arrivals = arrivals.model_copy(update={"rate": rate})
    return replace(setting, serving=setting.serving.model_copy(update={"arrivals": arrivals}))


def braked(run: ScenarioRun, servers: int) -> bool:
    """Whether a row needs its power brake with a number of servers; the load of a server stays the same."""
    arrivals, replicas = run.data["workload"]["arrivals"], int(run.data["deployment"]["replicas"])
    rates = [rate * servers / replicas for rate in arrivals["rates"]]
    data = set_key(run.data, "workload.arrivals.rates", rates, run.folder, run.where)
    data = set_key(data, "deployment.replicas", servers, run.folder, run.where)
    row = serve(make_serving(data, run.where, run.folder)).row
    return row is None or row.brakes > 0
