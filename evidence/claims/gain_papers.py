"""Published gains of systems for diffusion models, graphs, simulators and post-training beside predictions.

    python -m benchmarks.gain_papers

Bands were set before the runs (after hand rooflines). A claim without its mechanism falls out of its band,
which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.loading import Strict
from evidence.claims.claim_files import Band, FigureClaim, named_runs, paper, read_figures
from evidence.command import command
from meshwright.jobs import AskOptions, job_of
from meshwright.jobs.rl import PostTraining
from meshwright.variations.question import ScenarioRun
from simulator.diffusion.request import DiffusionRequest
from simulator.frames.rates import FrameRates
from simulator.graphs.epoch import Epoch
from simulator.rl.step import RlStep

Requests = Mapping[str, DiffusionRequest]
Epochs = Mapping[str, Epoch]
Rates = Mapping[str, FrameRates]
Steps = Mapping[str, RlStep]


class Unstated(Strict):
    """An input that no source states, and the figure with what it may be."""

    what: str
    """The input."""
    runs: dict[str, dict[str, Any]]
    """The figure's other arguments by value of the input."""
    band: Band | None = None
    """Least and most that the figure was measured to be, where not once alone; default: the claim's band."""


class GainClaim(FigureClaim):
    """A published gain of a scenario in ``scenarios/papers``; its figure is one of `FIGURES`."""

    published: float
    """The gain as published."""
    band: Band
    """Least and most that the prediction may be."""
    without: dict[str, str]
    """Runs that show the claim without its mechanism, by the names of those with it."""
    unstated: Unstated | None = None
    """What leaves a claim open whose prediction is out of its band: some value of it agrees."""
    missed: str = ""
    """Why the prediction is out of its band; empty: it is not."""

    def verdict(self, runs: Mapping[str, Any]) -> str:
        """Whether the claim is missed, or cannot be decided: with figures by value of what is not stated."""
        if self.band[0] <= predicted(self, runs) <= self.band[1]:
            return ""
        if self.unstated is None:
            return f"missed: {self.missed}"
        figures = ", ".join(f"{value:.2f} ({of})" for of, value in self.figures(runs).items())
        return f"not decidable: {figures}, by {self.unstated.what}; {self.missed}"

    def figures(self, runs: Mapping[str, Any]) -> dict[str, float]:
        """The claim's figure by value of the input that is not stated."""
        by_value = self.unstated.runs if self.unstated else {}
        return {value: FIGURES[self.figure](runs, **arguments) for value, arguments in by_value.items()}


def speed_up(runs: Requests, name: str) -> float:
    """Latency of the base over that of a variation."""
    return runs["base"].times.latency_s / runs[name].times.latency_s


def more_images(runs: Requests, name: str) -> float:
    """Images a second of a variation over those of the base."""
    return runs[name].rate / runs["base"].rate


def images_a_device(runs: Requests, name: str) -> float:
    """Images a second and device of a variation over those of the base."""
    changed, base = (runs[each].rate / runs[each].setting.devices for each in (name, "base"))
    return changed / base


def memory_share(runs: Requests, name: str) -> float:
    """Memory of a device of a variation over that of the base."""
    used, base = (sum(runs[each].memory_bytes.values()) for each in (name, "base"))
    return used / base


def spared_bytes(runs: Requests) -> float:
    """Share of the bytes that partial conditioning saves."""
    return 1.0 - runs["eight, partial"].received_bytes / runs["eight"].received_bytes


def batched_frames(runs: Requests) -> float:
    """Frames a second of steps as one batch over those of steps one after the other."""
    alone, batch = runs["residual guidance"], runs["four frames in a batch"]
    return batch.setting.workload.batch * alone.times.step_s / batch.times.step_s


def fewer_calls(runs: Requests) -> float:
    """Frames a second of one call a step over those of two."""
    return runs["base"].times.step_s / runs["residual guidance"].times.step_s


def fewer_bytes(runs: Epochs) -> float:
    """Copies between partitions over what stages pass on."""
    base, stages = (runs[name].replica_bytes + runs[name].boundary_bytes for name in ("base", "stages"))
    return base / stages


def less_time(runs: Epochs) -> float:
    """Time of an epoch of partitions over that of stages."""
    return runs["base"].epoch_s / runs["stages"].epoch_s


def shorter_step(runs: Steps, name: str, other: str) -> float:
    """Seconds of a step of one run over those of another."""
    return runs[other].timing.seconds / runs[name].timing.seconds


def frames(runs: Rates) -> float:
    """Frames a second of the base."""
    return runs["base"].frames_s


def more_frames(runs: Rates, name: str) -> float:
    """Frames a second of the base over those of a variation."""
    return runs["base"].frames_s / runs[name].frames_s


FIGURES: dict[str, Callable[..., float]] = {
    each.__name__: each
    for each in (
        *(batched_frames, fewer_bytes, fewer_calls, frames, images_a_device),
        *(less_time, memory_share, more_frames, more_images),
        *(shorter_step, spared_bytes, speed_up),
    )
}
"""Predictions by name, from the predicted runs of a scenario by name."""
GAIN_CLAIMS = read_figures("gains", GainClaim, FIGURES)


def predicted(claim: GainClaim, runs: Mapping[str, Any]) -> float:
    """The claim's figure."""
    return FIGURES[claim.figure](runs, **claim.given)


def runs_of(scenario: str) -> dict[str, Any]:
    """Predicted runs of a scenario by name; its base is ``base``."""
    return {name: _run(run) for name, run in named_runs(paper(scenario)).items()}


def _run(run: ScenarioRun) -> DiffusionRequest | Epoch | FrameRates | RlStep:
    question = run.data, run.where, run.folder
    answered: Any = job_of(*question).answer(question, AskOptions())
    return answered.step if isinstance(answered, PostTraining) else answered.result


@command
def main() -> None:
    runs = {name: runs_of(name) for name in {claim.scenario for claim in GAIN_CLAIMS}}
    print("| claim | published | predicted | band | |\n|---|---|---|---|---|")
    for claim in GAIN_CLAIMS:
        named, (least, largest) = runs[claim.scenario], claim.band
        row = f"{claim.published:g} | {predicted(claim, named):.2f} | {least:g} to {largest:g}"
        print(f"| {claim.what} | {row} | {claim.verdict(named)} |")
