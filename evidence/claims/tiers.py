"""Published runs with state off the device, coded wires or rare exchanges: ``python -m benchmarks.tiers``.

Prints, for each run of ``scenarios/papers`` that stands for a published figure, the prediction and its
deviation, as docs/accuracy/tiers.md shows them. Bands are those that were set before the first run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from evidence.claims.serving_papers import LEAST_GAIN
from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import ScenarioRun, WhatIfQuestion
from simulator.plan import Plans
from simulator.training import predict
from simulator.training.memory import memory

Unit = Literal["TFLOP/s", "times", "a GPU", "s", "s more", "GB less", "words/s", "h", "%"]


class Point(NamedTuple):
    """One published figure.

    ``run`` is a variation's name, or two for a ratio: the slower one first. ``band`` is the relative
    deviation that was allowed before looking, or the least and the most; 0: none was set, or a rate was
    fitted on the row.
    """

    row: str
    scenario: str
    run: tuple[str, ...]
    published: float
    unit: Unit
    band: float | tuple[float, float]

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


def _zero_plus_plus() -> Iterator[Point]:
    name, published = "zero-plus-plus-v100", {"": (36, 51), ", 1K": (23, 36)}
    slow = {"": (20, 38), ", 1K": (11, 22)}
    ids = {(400, ", 1K"): 2, (400, ""): 10, (100, ", 1K"): 18, (100, ""): 26}
    for rate, found in ((400, published), (100, slow)):
        for tokens, (plain, coded) in found.items():
            for at, size in enumerate(("49B, ", "91B, ", "")):
                run, first = f"{size}{rate} Gb/s{tokens}", ids[rate, tokens] + at
                better = 50 if (rate, tokens, size) == (400, "", "") else coded
                yield Point(f"L{first:04}", name, (run,), plain, "TFLOP/s", 0.15)
                yield Point(f"L{first + 4:04}", name, (f"{run}, ZeRO++",), better, "TFLOP/s", 0.0)
    for run, gain in (("400 Gb/s, 1K", 1.57), ("400 Gb/s", 1.40), ("100 Gb/s, 1K", 2.0), ("100 Gb/s", 1.9)):
        yield Point("ratio", name, (run, f"{run}, ZeRO++"), gain, "times", 0.12)
    yield Point("L0038/39", name, ("base", "200 Gb/s, ZeRO++"), 1.0, "times", 0.08)


def _megatron() -> Iterator[Point]:
    name = "megatron-offload-30b"
    for at, (run, seconds, less) in enumerate(
        (("25 %", 0.875, 3.8), ("50 %", 1.488, 7.6), ("75 %", 2.191, 11.6), ("100 %", 3.193, 15.2))
    ):
        row = f"MBSK-O{'bcde'[at]}"
        yield Point(row, name, ("base", run), seconds, "s more", 0.12 if run != "100 %" else 0.0)
        yield Point(row, name, ("base", run), less, "GB less", 0.08)
    yield Point("MBSK-Of", name, ("base", "100 %, overlapped"), 2.881, "s more", 0.12)


POINTS = (
    *_zero_plus_plus(),
    Point("O0058/78", "patrickstar-a100", ("6B", "6B, PatrickStar"), 1.62, "times", 0.20),
    Point("O0060/79", "patrickstar-a100", ("15B", "15B, PatrickStar"), 1.47, "times", 0.20),
    Point("O0061/80", "patrickstar-a100", ("base", "PatrickStar"), 1.42, "times", 0.20),
    Point("O0099/100", "deep-optimizer-states-7b", ("base", "in turn"), 1.39, "times", (1.2, 1.6)),
    Point("O0102", "mlp-offload-52b", ("base",), 238.74, "s", 0.0),
    Point("O0103", "mlp-offload-52b", ("two paths",), 92.01, "s", 0.0),
    Point("O0104", "mlp-offload-52b", ("69B",), 370.89, "s", 0.15),
    Point("O0105", "mlp-offload-52b", ("69B, two paths",), 151.27, "s", 0.15),
    Point("O0106", "mlp-offload-52b", ("106B",), 572.44, "s", 0.15),
    Point("O0107", "mlp-offload-52b", ("106B, two paths",), 275.81, "s", 0.15),
    Point("O0113/114", "fuyou-13b", ("base", "Fuyou"), 3.47, "times", (1.5, 3.8)),
    Point("O0119", "twin-flow-opt", ("base", "Twin-Flow"), 3.04, "times", 0.35),
    Point("O0120", "twin-flow-opt", ("30B", "30B, Twin-Flow"), 6.08, "times", 0.35),
    Point("O0123", "deepcompile-70b", ("base", "DeepCompile"), 6.85, "times", 0.25),
    Point("O0126", "deepcompile-70b", ("1K", "1K, DeepCompile"), 6.96, "times", 0.25),
    Point("O0129", "deepcompile-70b", ("2K", "2K, DeepCompile"), 5.33, "times", 0.25),
    Point("O0134", "deferred-update-3b", ("base",), 0.24, "s", 0.0),
    Point("O0136", "deferred-update-3b", ("deferred",), 0.569, "s", 0.0),
    Point("O0135", "deferred-update-3b", ("offload",), 1.365, "s", 0.0),
    *_megatron(),
    Point("L0043", "co2-7b", ("8 GPUs",), 18444, "words/s", 0.20),
    Point("L0044", "co2-7b", ("16 GPUs",), 3488, "words/s", 0.0),
    Point("L0045", "co2-7b", ("DDP",), 22810, "words/s", 0.20),
    Point("L0046", "co2-7b", ("CO2",), 304736, "words/s", 0.20),
    Point("L0046/45", "co2-7b", ("DDP", "CO2"), 13.4, "times", 0.20),
    Point("L0048", "intellect-1-10b", ("base",), 83, "%", 0.0),
    Point("L0049", "intellect-1-10b", ("United States",), 96, "%", (92, 100)),
    Point("SWARM", "swarm-1b", ("base", "8 bits"), 2.0, "times", (1.0, 2.0)),
    Point("L0060", "three-level-20b", ("ZeRO++", "three levels"), 1.71, "times", (1.0, 1.9)),
    Point("L0060", "three-level-20b", ("64 GCDs, three levels", "three levels"), 0.94, "a GPU", 0.0),
    Point("L0050", "diloco-1b", ("base",), 109, "h", 0.10),
    Point("L0053", "diloco-1b", ("streaming",), 0.88, "h", 0.10),
    Point("L0056", "diloco-1b", ("eager",), 0.67, "h", 0.10),
)
"""Published figures, with their ids in the tables of faults, offload and low communication."""

TIER_SCENARIOS = tuple(dict.fromkeys(point.scenario for point in POINTS))
DILOCO_TOKENS = 25e9


class TierRuns:
    """The runs of one scenario by name, each predicted once."""

    def __init__(self, scenario: str) -> None:
        self.question = WhatIfQuestion.read(shipped_scenarios()[f"papers/{scenario}"])
        self._seconds: dict[str, float] = {}

    @cached_property
    def by_name(self) -> dict[str, ScenarioRun]:
        """Base and variations."""
        return {run.name: run for run in (self.question.base, *self.question.runs())}

    def step(self, name: str) -> float:
        """Seconds of a step."""
        if name not in self._seconds:
            made = self.by_name[name].scenario()
            assert made.plan is not None
            self._seconds[name] = float(predict(made.setting, Plans.of(made.plan)).time[0])
        return self._seconds[name]

    def peak(self, name: str) -> float:
        """Bytes of the fullest device."""
        made = self.by_name[name].scenario()
        assert made.plan is not None
        plans = Plans.of(made.plan)
        found = predict(made.setting, plans)
        return float(memory(made.setting, plans, found.stages, found.parameters).peak[0])

    def waiting(self, name: str) -> float:
        """Seconds of a step in which groups of replicas exchange."""
        made = self.by_name[name].scenario()
        assert made.plan is not None
        return float(predict(made.setting, Plans.of(made.plan)).seconds["sync"][0])

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
    known: dict[str, TierRuns] = {}
    for point in POINTS:
        runs = known.setdefault(point.scenario, TierRuns(point.scenario))
        found = runs.figure(point)
        gap = found / point.published - 1
        band = "none or fitted"
        if point.band:
            band = point.shown_band + ("" if point.inside(found) else ", missed")
        name = " / ".join(reversed(point.run))
        yield (
            f"| {point.row} | `{point.scenario}` | {name} | {point.published:g} {point.unit} | {found:.3g} | "
            f"{gap:+.1%} | {band} |"
        )


def main() -> None:
    """Print the table, line by line as it is found."""
    for line in rows():
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
