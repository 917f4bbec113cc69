"""Published gains of systems for diffusion models, and what the simulator says.

    python -m evidence.claims.diffusion_papers

Bands were set before the runs (the issue's table, after hand rooflines). A claim without its mechanism falls
out of its band, which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evidence.claims.claim_files import Band, FigureClaim, named_runs, paper, read_figures
from simulator.diffusion.request import DiffusionRequest, predict_request
from simulator.diffusion.scenario import make_diffusion

Requests = Mapping[str, DiffusionRequest]


class DiffusionClaim(FigureClaim):
    """A published gain of a scenario in ``scenarios/papers``; its figure is one of `FIGURES`."""

    published: float
    """The gain as published."""
    band: Band
    """Least and most that the prediction may be."""
    without: dict[str, str]
    """Runs that show the claim without its mechanism, by the names of those with it."""
    missed: str = ""
    """Why the prediction is out of its band; empty: it is not."""


def speed_up(runs: Requests, name: str) -> float:
    """Latency of the base over that of a variation."""
    return runs["base"].times.latency_s / runs[name].times.latency_s


def fewer_bytes(runs: Requests) -> float:
    """Share of the bytes that partial conditioning saves."""
    return 1.0 - runs["eight, partial"].received_bytes / runs["eight"].received_bytes


def batched_frames(runs: Requests) -> float:
    """Frames a second of steps as one batch over those of steps one after the other."""
    alone, batch = runs["residual guidance"], runs["four frames in a batch"]
    return batch.setting.workload.batch * alone.times.step_s / batch.times.step_s


def fewer_calls(runs: Requests) -> float:
    """Frames a second of one call a step over those of two."""
    return runs["base"].times.step_s / runs["residual guidance"].times.step_s


FIGURES: dict[str, Callable[..., float]] = {
    each.__name__: each for each in (batched_frames, fewer_bytes, fewer_calls, speed_up)
}
"""Predictions by name, from the predicted runs of a scenario by name."""
DIFFUSION_CLAIMS = read_figures("diffusion", DiffusionClaim, FIGURES)


def predicted(claim: DiffusionClaim, runs: Requests) -> float:
    """The claim's figure."""
    return FIGURES[claim.figure](runs, **claim.given)


def requests_of(scenario: str) -> dict[str, DiffusionRequest]:
    """Predicted runs of a scenario by name; its base is ``base``."""
    return {
        name: predict_request(make_diffusion(run.data, run.where, run.folder))
        for name, run in named_runs(paper(scenario)).items()
    }


def main() -> None:
    runs = {name: requests_of(name) for name in {claim.scenario for claim in DIFFUSION_CLAIMS}}
    print("| claim | published | predicted | band | |\n|---|---|---|---|---|")
    for claim in DIFFUSION_CLAIMS:
        figure, (least, largest) = predicted(claim, runs[claim.scenario]), claim.band
        verdict = "" if least <= figure <= largest else f"missed: {claim.missed}"
        print(f"| {claim.what} | {claim.published:g} | {figure:.2f} | {least:g} to {largest:g} | {verdict} |")


if __name__ == "__main__":
    main()
