"""Published gains of systems for diffusion models, and what the simulator says.

    python -m evidence.claims.diffusion_papers

Bands were set before the runs (the issue's table, after hand rooflines). A claim without its mechanism falls
out of its band, which a test holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import WhatIfQuestion
from simulator.diffusion.request import DiffusionRequest, predict_request
from simulator.diffusion.scenario import make_diffusion

Requests = Mapping[str, DiffusionRequest]


@dataclass(frozen=True)
class DiffusionClaim:
    """A published figure of a scenario in ``scenarios/papers``.

    Attributes:
        scenario: its name.
        what: what the figure compares.
        published: the figure as published.
        band: least and most that the prediction may be.
        figure: of the predicted runs by name.
        without: runs that show the claim without its mechanism, by the names of those with it.
        missed: why the prediction is out of its band; empty: it is not.
    """

    scenario: str
    what: str
    published: float
    band: tuple[float, float]
    figure: Callable[[Requests], float]
    without: Mapping[str, str]
    missed: str = ""


def speed_up(name: str) -> Callable[[Requests], float]:
    """Latency of the base over that of a variation."""
    return lambda runs: runs["base"].times.latency_s / runs[name].times.latency_s


def _fewer_bytes(runs: Requests) -> float:
    """Share of the bytes that partial conditioning saves."""
    return 1.0 - runs["eight, partial"].received_bytes / runs["eight"].received_bytes


def _batched_frames(runs: Requests) -> float:
    """Frames a second of steps as one batch over those of steps one after the other."""
    alone, batch = runs["residual guidance"], runs["four frames in a batch"]
    return batch.setting.workload.batch * alone.times.step_s / batch.times.step_s


def _fewer_calls(runs: Requests) -> float:
    """Frames a second of one call a step over those of two."""
    return runs["base"].times.step_s / runs["residual guidance"].times.step_s


PATCHES, STREAM = "papers/diffusion-distrifusion-sdxl", "papers/diffusion-stream-sd-turbo"
DIFFUSION_CLAIMS = (
    DiffusionClaim(PATCHES, "DistriFusion on 2 devices", 1.8, (1.6, 2.0), speed_up("two"), {"two": "base"}),
    DiffusionClaim(PATCHES, "DistriFusion on 4 devices", 3.4, (2.9, 4.0), speed_up("four"), {"four": "two"}),
    DiffusionClaim(
        PATCHES, "DistriFusion on 8 devices", 6.1, (5.0, 7.0), speed_up("eight"), {"eight": "two"}
    ),
    DiffusionClaim(
        PATCHES, "PCPP: fewer bytes", 0.7, (0.65, 0.71), _fewer_bytes, {"eight, partial": "eight"}
    ),
    DiffusionClaim(
        PATCHES, "PCPP on 8 devices", 8.02, (5.5, 8.0), speed_up("eight, partial"), {"eight, partial": "two"}
    ),
    DiffusionClaim(
        STREAM,
        "StreamDiffusion: steps of frames in a batch",
        1.5,
        (1.3, 1.7),
        _batched_frames,
        {"four frames in a batch": "residual guidance"},
        "1.29: a frame of 512 pixels fills the products of an RTX 4090 better here than there",
    ),
    DiffusionClaim(
        STREAM,
        "StreamDiffusion: residual guidance",
        2.05,
        (1.6, 2.05),
        _fewer_calls,
        {"residual guidance": "base"},
    ),
)


def requests_of(scenario: str) -> dict[str, DiffusionRequest]:
    """Predicted runs of a scenario by name; its base is ``base``."""
    question = WhatIfQuestion.read(shipped_scenarios()[scenario])
    runs = {"base": question.data} | {run.name: run.data for run in question.runs()}
    place = question.where, question.folder
    return {name: predict_request(make_diffusion(run, *place)) for name, run in runs.items()}


def main() -> None:
    runs = {name: requests_of(name) for name in {claim.scenario for claim in DIFFUSION_CLAIMS}}
    print("| claim | published | predicted | band | |\n|---|---|---|---|---|")
    for claim in DIFFUSION_CLAIMS:
        figure, (least, most) = claim.figure(runs[claim.scenario]), claim.band
        verdict = "" if least <= figure <= most else f"missed: {claim.missed}"
        print(f"| {claim.what} | {claim.published:g} | {figure:.2f} | {least:g} to {most:g} | {verdict} |")


if __name__ == "__main__":
    main()
