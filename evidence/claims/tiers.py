"""Published runs with state off the device, coded wires or rare exchanges: ``python -m benchmarks.tiers``.

Prints, for each run of ``scenarios/papers`` that stands for a published figure, the prediction and its
deviation, as docs/accuracy/tiers.md shows them. Bands are those that were set before the first run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from evidence.claims.claim_files import Band, RunNames, ScenarioClaim, named_runs, paper, read_claims
from evidence.claims.serving_papers import LEAST_GAIN
from evidence.command import command
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.memory import memory

Unit = Literal["TFLOP/s", "times", "a GPU", "s", "s more", "GB less", "words/s", "h", "%"]


class Point(ScenarioClaim):
    """One published figure."""

    row: str
    """Its id in the collected tables."""
    run: RunNames
    """A variation's name, or two for a ratio: the slower one first."""
    published: float
    unit: Unit
    band: float | Band = 0.0
    """Relative deviation that was allowed before looking, or the least and the most; 0: none was set, or a
    rate was fitted on the row."""

    def inside(self, value: float) -> bool:
        """Whether a value lies in the band; a gain gains, where the published one does."""
        if self.unit == "times" and self.published > 1.0 + LEAST_GAIN > value:
            return False
        if isinstance(self.band, tuple):
            return self.band[0] <= value <= self.band[1]
        return abs(value / self.published - 1) <= self.band

    @property
    def shown_band(self) -> str:
        """The band for people."""
        if isinstance(self.band, tuple):
            return f"{self.band[0]:g} to {self.band[1]:g}"
        return f"{self.band:.0%}"


POINTS = read_claims("tiers", Point)
"""Published figures, with their ids in the tables of faults, offload and low communication."""

TIER_SCENARIOS = tuple(dict.fromkeys(point.scenario for point in POINTS))
DILOCO_TOKENS = 25e9


class TierRuns:
    """The runs of one scenario by name, each predicted once."""

    def __init__(self, scenario: str) -> None:
        self.question = paper(scenario)
        self.by_name = named_runs(self.question)
        self._seconds: dict[str, float] = {}

    def _planned(self, name: str) -> tuple[Setting, Plans]:
        scenario = self.by_name[name].scenario()
        return scenario.setting, Plans.of(scenario.needed_plan(name))

    def step(self, name: str) -> float:
        """Seconds of a step."""
        if name not in self._seconds:
            self._seconds[name] = float(predict(*self._planned(name)).time[0])
        return self._seconds[name]

    def peak(self, name: str) -> float:
        """Bytes of the fullest device."""
        setting, plans = self._planned(name)
        predicted = predict(setting, plans)
        return float(memory(setting, plans, predicted.stages, predicted.parameters).peak[0])

    def waiting(self, name: str) -> float:
        """Seconds of a step in which groups of replicas exchange."""
        return float(predict(*self._planned(name)).seconds["sync"][0])

    def figure(self, point: Point) -> float:
        """What a published figure should be."""
        seconds = [self.step(name) for name in point.run]
        setting = self.by_name[point.run[-1]].scenario().setting
        training, model = setting.training, setting.model
        if point.unit in ("times", "a GPU"):
            slow, fast = (
                self.by_name[name].scenario().setting.training.tokens / self.step(name) for name in point.run
            )
            devices = [self.by_name[name].scenario().setting.cluster.devices for name in point.run]
            return fast / slow * (devices[0] / devices[1] if point.unit == "a GPU" else 1.0)
        if point.unit == "s more":
            return seconds[1] - seconds[0]
        if point.unit == "GB less":
            bare, placed = (self.peak(name) for name in point.run)
            return (bare - placed) / 1e9
        if point.unit == "%":
            return 100 * (1 - self.waiting(point.run[0]) / seconds[0])
        if point.unit == "TFLOP/s":
            # As the authors count: 8 FLOPs a parameter of the layers and token, recomputation included.
            flops = 8 * 12 * model.layers * model.hidden**2 * training.tokens
            return flops / seconds[0] / setting.cluster.devices / 1e12
        if point.unit == "words/s":
            return training.tokens / seconds[0]
        if point.unit == "h":
            return DILOCO_TOKENS / training.tokens * seconds[0] / 3600
        return seconds[0]


def rows() -> Iterator[str]:
    """Lines of the table, in Markdown."""
    yield "| row | scenario | run | published | predicted | deviation | band |"
    yield "|---|---|---|---|---|---|---|"
    runs_of: dict[str, TierRuns] = {}
    for point in POINTS:
        runs = runs_of.setdefault(point.scenario, TierRuns(point.scenario))
        figure = runs.figure(point)
        gap = figure / point.published - 1
        band = "none or fitted"
        if point.band:
            band = point.shown_band + ("" if point.inside(figure) else ", missed")
        name = " / ".join(reversed(point.run))
        yield (
            f"| {point.row} | `{point.scenario}` | {name} | {point.published:g} {point.unit} | "
            f"{figure:.3g} | {gap:+.1%} | {band} |"
        )


@command
def main() -> None:
    """Print the table, line by line as it is found."""
    for line in rows():
        print(line, flush=True)
