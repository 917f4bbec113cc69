"""Published figures of runs of weeks, and what the simulator says; `python -m benchmarks.papers` prints them.

Every band was set before the first run (issue "Weeks, not steps"). A figure without a band is printed with
its cause beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from meshwright.run_api import RunSimulation, run
from meshwright.scenarios import shipped_scenarios
from meshwright.variations.question import WhatIfQuestion


@dataclass(frozen=True)
class RunClaim:
    """A published figure of a run.

    Attributes:
        scenario: file in ``scenarios/papers``.
        what: the figure.
        published: as printed, with its rows of the collected data.
        band: least and most that counts as reached; None: printed without a band.
        figure: the prediction, from the scenario's variations by name ("" is the base).
        unit: of the figure.
    """

    scenario: str
    what: str
    published: str
    band: tuple[float, float] | None
    figure: Callable[[Variants], float]
    unit: str = ""


class Variants:
    """Runs of a scenario and of its variations, simulated once."""

    def __init__(self, scenario: str, replications: int | None = None) -> None:
        self.question = WhatIfQuestion.read(shipped_scenarios()[f"papers/{scenario}"])
        self.replications = replications
        self.known: dict[str, RunSimulation] = {}
        self.data = {each.name: each for each in [self.question.base, *self.question.runs()]}

    def __getitem__(self, name: str) -> RunSimulation:
        """The run of a variation; "" is the base."""
        if name not in self.known:
            each = self.data[name or "base"]
            self.known[name] = run(each.data, replications=self.replications)
        return self.known[name]


def goodput(name: str = "") -> Callable[[Variants], float]:
    """Goodput of a variation, percent."""
    return lambda runs: 100 * runs[name].planned.outcome.goodput


def mtbf_h(name: str = "") -> Callable[[Variants], float]:
    """Hours between faults of a variation's job."""
    return lambda runs: runs[name].planned.outcome.mtbf_s / 3600


RUN_CLAIMS: tuple[RunClaim, ...] = (
    RunClaim("run-llama3-405b", "hours between interruptions", "3.09 (F0022)", (3.085, 3.095), mtbf_h(), "h"),
    RunClaim("run-llama3-405b", "effective training time", "> 90 % (F0023)", (88, 97), goodput(), "%"),
)


def run_rows(asked: list[str]) -> Iterator[str]:
    """Lines of the table, in Markdown; claims of the scenarios asked for, or all."""
    yield "| scenario | figure | published | band | simulated | verdict |"
    yield "|---|---|---|---|---|---|"
    variants: dict[str, Variants] = {}
    for claim in RUN_CLAIMS:
        if not asked or claim.scenario in asked:
            runs = variants.setdefault(claim.scenario, Variants(claim.scenario))
            yield run_row(claim, claim.figure(runs))


def run_row(claim: RunClaim, found: float) -> str:
    """One line of the table."""
    band, verdict = "none", "printed"
    if claim.band is not None:
        low, high = claim.band
        band = f"{low:g} to {high:g}"
        verdict = "inside" if low <= found <= high else "below" if found < low else "above"
    figure = f"{found:.4g} {claim.unit}".strip()
    return f"| `{claim.scenario}` | {claim.what} | {claim.published} | {band} | {figure} | {verdict} |"
