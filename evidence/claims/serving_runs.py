"""Runs of a paper's serving scenario, and the figures that claims read from them.

A figure is a key of the report, dotted, or one of `SEARCHED` or of `serving_by_hand`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evidence.claims.claim_files import named_runs, paper
from evidence.claims.serving_by_hand import BY_HAND
from evidence.claims.serving_rates import PLACES, Starts, at_rate, braked, last_within, rate_at
from evidence.claims.serving_targets import slowed_too_much, smooth_rate
from meshwright.questions.keys import set_key
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

LOWER = ("itl_s.p95", "itl_s.mean", "ttft_s.mean", "ttft_s.p99", "e2e_s.mean", "e2e_s.p99")
"""Figures of which less is better."""
GAP_S = 0.25
"""FastGen's target of token gaps: 4 tokens/s."""
ALONE = {"cluster": "dgx-a100-80gb", "deployment.replicas": 1}
"""The machine on which Splitwise's requests run alone."""
IN_TIME = 0.95
"""Share of the programs that must meet their deadline."""


class ServingRuns:
    """The runs of one scenario by name, each simulated once.

    Args:
        scenario: file in ``scenarios/papers``.
        starts: where searches begin, by run.
    """

    def __init__(self, scenario: str, starts: Starts | None = None) -> None:
        self.question = paper(scenario)
        self.by_name = named_runs(self.question)
        self.places: dict[str, int] = {}
        self._starts = starts or {}
        self._figures: dict[tuple[str, str], float] = {}
        self._reports: dict[tuple[str, float | None], dict[str, Any]] = {}
        self._settings: dict[str, ServingSetting] = {}

    def value(self, name: str, metric: str) -> float:
        """A figure of one run."""
        key = name, metric
        if key not in self._figures:
            self._figures[key] = self._value(name, metric)
        return self._figures[key]

    def report(self, name: str, rate: float | None = None) -> dict[str, Any]:
        """The report of one run, at another rate of arrivals if any."""
        key = name, rate
        if key not in self._reports:
            self._reports[key] = self.served(name, rate).to_dict()
        return self._reports[key]

    def setting(self, name: str) -> ServingSetting:
        """The setting of one run, whose tables of steps serve all rates."""
        if name not in self._settings:
            run = self.by_name[name]
            self._settings[name] = make_serving(run.data, run.where, run.folder)
        return self._settings[name]

    def served(self, name: str, rate: float | None = None) -> ServingResult:
        """One run, at another rate of arrivals if any."""
        setting = self.setting(name)
        return serve(setting if rate is None else at_rate(setting, rate))

    def largest_rate(self, name: str, within: Callable[[float], bool]) -> float:
        """The largest rate of arrivals at which a run is within its targets; 0 where none in the range is."""
        run = self.by_name[name]
        if name not in self.places:
            start = self._starts.get(name)
            self.places[name] = last_within(lambda place: within(rate_at(run, place)), 0, PLACES, start)
        return rate_at(run, self.places[name])

    def sustained(self, name: str) -> float:
        """The largest rate at which the share of requests within the targets is kept, a second and GPU."""
        share, gpus = self.setting(name).serving.slo.share, self.setting(name).gpus

        def within(rate: float) -> bool:
            return (self.served(name, rate).metrics.slo_share or 0.0) >= share

        return self.largest_rate(name, within) / gpus

    def unslowed(self, name: str) -> float:
        """The largest rate within Splitwise's slowdowns against requests alone on a DGX A100, a second."""
        run = self.by_name[name]
        data = run.data
        for key, value in ALONE.items():
            data = set_key(data, key, value, run.folder, run.where)
        deployment = {key: value for key, value in data["deployment"].items() if key != "pools"}
        steps = make_serving({**data, "deployment": deployment}, run.where, run.folder).pools[0].costs.steps
        return self.largest_rate(name, lambda rate: not slowed_too_much(self.served(name, rate), steps))

    def unbraked(self, name: str) -> float:
        """The most servers whose row needs no power brake, over those that its power was provisioned for."""
        run = self.by_name[name]
        least = int(run.data["deployment"]["power_policy_options"]["servers"])
        start = self._starts.get(name)
        self.places[name] = last_within(lambda servers: not braked(run, servers), least, 2 * least, start)
        return self.places[name] / least

    def programs_in_time(self, name: str) -> float:
        """The largest rate of programs at which enough of them meet their deadline, a second."""
        return self.largest_rate(
            name, lambda rate: (self.report(name, rate)["deadlines_met"] or 0.0) >= IN_TIME
        )

    def smooth(self, name: str) -> float:
        """Requests a second within FastGen's targets."""
        return smooth_rate(serve(self.setting(name), traced=True), GAP_S)

    def prompt_seconds(self, name: str) -> float:
        """Seconds of a prompt inside the engine, without its server."""
        steps = self.setting(name).pools[0].costs.steps
        return steps.step(((self.by_name[name].data["workload"]["input"], 0),), 0, 0)

    def _value(self, name: str, metric: str) -> float:
        if metric in SEARCHED:
            return SEARCHED[metric](self, name)
        if metric in BY_HAND:
            return BY_HAND[metric](self.setting(name))
        return _figure(self.report(name), metric)


def _figure(report: dict[str, Any], metric: str) -> float:
    value: Any = report
    for part in metric.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return float(value)


SEARCHED: dict[str, Callable[[ServingRuns, str], float]] = {
    "programs_in_time": ServingRuns.programs_in_time,
    "prompt_seconds": ServingRuns.prompt_seconds,
    "smooth": ServingRuns.smooth,
    "sustained": ServingRuns.sustained,
    "unbraked": ServingRuns.unbraked,
    "unslowed": ServingRuns.unslowed,
}
"""Figures beyond the report's, by name."""
