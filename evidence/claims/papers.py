"""Published gains of pipeline schedules and of serving systems: run with ``python -m benchmarks.papers``.

Runs every scenario in ``scenarios/papers`` and prints the table of docs/schedules.md: the published gain, the
gains that the event engine finds under those conditions, and whether the claim is reached. Words of the
command line choose claims by their scenario's name. Why a claim is missed, its scenario says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from core.errors import named
from evidence.claims.claim_files import Band, Pairs, PaperClaim, RunNames, named_runs, paper, read_claims
from evidence.claims.run_papers import RUN_CLAIMS, run_rows
from evidence.claims.serving_papers import SERVING_CLAIMS, serving_rows
from evidence.claims.serving_rates import write_starts
from evidence.claims.serving_runs import ServingRuns
from evidence.command import command
from meshwright.questions.keys import set_key
from meshwright.variations.question import ScenarioRun
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training.memory import memory
from simulator.training.step_graph.build import simulate


class Claim(PaperClaim):
    """A published gain, and the runs that it is read from."""

    published: Band
    """Least and most gain, times; equal for "up to"."""
    pairs: Pairs
    """Runs by name, each with the one that it is compared with."""
    largest: RunNames = ()
    """Keys whose largest value that fits in memory is compared, each raised to the same value; none: tokens
    per second and GPU are compared."""
    multiple: Annotated[tuple[int, int], Field(strict=False)] = (1, 1)
    """What that value must be a multiple of, for each run of the pair."""


CLAIMS = read_claims("schedules", Claim)


class Runs:
    """The runs of one scenario by name, each simulated once."""

    def __init__(self, scenario: str) -> None:
        self.question = paper(scenario)
        self.by_name = named_runs(self.question)
        self._speeds: dict[str, float] = {}

    def speed(self, name: str) -> float:
        """Tokens per second and GPU."""
        if name not in self._speeds:
            setting, plan = _planned(self.by_name[name])
            tokens = setting.training.global_batch * setting.training.seq_len
            seconds = simulate(setting, plan).period
            self._speeds[name] = tokens / seconds / setting.cluster.devices
        return self._speeds[name]

    def largest(self, name: str, keys: tuple[str, ...], multiple: int) -> int:
        """The largest multiple of a number that these keys can have together and fit in memory."""
        run = self.by_name[name]

        def fits(count: int) -> bool:
            data = run.data
            for key in keys:
                data = set_key(data, key, multiple * count, run.folder, run.where)
            return _fits(*_planned(replace(run, data=data)))

        return multiple * largest(fits)


def _planned(run: ScenarioRun) -> tuple[Setting, Plan]:
    scenario = run.scenario()
    return scenario.setting, scenario.needed_plan(run.where)


def _fits(setting: Setting, plan: Plan) -> bool:
    plans = Plans.of(plan)
    stages = Stages.of(setting, plans)
    footprint = memory(setting, plans, stages, parameters(setting, plans, stages))
    return bool(footprint.peak[0] <= setting.cluster.device.memory_bytes)


def largest(fits: Callable[[int], bool]) -> int:
    """The largest count that fits, where all smaller ones do too."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def gains(claim: Claim, runs: Runs) -> list[float]:
    """What each pair of runs gains, times."""
    if claim.largest:
        of, over = claim.multiple
        return [
            runs.largest(run, claim.largest, of) / runs.largest(other, claim.largest, over)
            for run, other in claim.pairs
        ]
    return [runs.speed(run) / runs.speed(other) for run, other in claim.pairs]


def tolerance(published: float) -> float:
    """Distance from a published gain that counts as reached: 30 % of the gain beyond 1, 10 % at most, 0.02 at
    least. The ratio of two predicted steps is off by 8 % in the median."""
    return min(0.1 * published, max(0.3 * (published - 1), 0.02))


def verdict(claim: Claim, figures: list[float]) -> str:
    """Whether the best gain, as printed, is as large as the highest published one, and where if not."""
    highest = claim.published[1]
    best = round(max(figures), _digits(max(figures)))
    if abs(best - highest) <= tolerance(highest) + 1e-9:
        return "reached"
    return f"{'above' if best > highest else 'below'} by {abs(best / highest - 1):.0%}"


def _digits(gain: float) -> int:
    return 1 if gain >= 3 else 2


def gain_range(least: float, highest: float) -> str:
    """A range of gains."""
    digits = _digits(highest)
    same = round(least, digits) == round(highest, digits)
    return f"{highest:.{digits}f}x" if same else f"{least:.{digits}f}-{highest:.{digits}f}x"


def rows(claims: Iterable[Claim], runs: Mapping[str, Runs] | None = None) -> Iterator[str]:
    """Lines of the table, in Markdown.

    Args:
        claims: the claims.
        runs: runs of scenarios that are known.
    """
    yield "| scenario | conditions | claim | published | engine | verdict |"
    yield "|---|---|---|---|---|---|"
    runs_of = dict(runs or {})
    for claim in claims:
        if claim.scenario not in runs_of:
            runs_of[claim.scenario] = Runs(claim.scenario)
        paper_runs = runs_of[claim.scenario]
        figures = gains(claim, paper_runs)
        cells = (
            f"`{claim.scenario}`",
            paper_runs.question.title,
            claim.what,
            gain_range(*claim.published),
            gain_range(min(figures), max(figures)),
            verdict(claim, figures),
        )
        yield f"| {' | '.join(cells)} |"


PAGE, SERVING_PAGE = (
    Path(__file__).parents[2] / "docs" / f"{name}.md" for name in ("schedules", "accuracy/serving-papers")
)


def write_page(page: Path, lines: list[str]) -> None:
    """Replace the table of the page that has the same heading."""
    written = page.read_text(encoding="utf-8").splitlines()
    start = written.index(lines[0])
    end = next((n for n in range(start, len(written)) if not written[n].startswith("|")), len(written))
    page.write_text("\n".join([*written[:start], *lines, *written[end:]]) + "\n", encoding="utf-8")


SCENARIOS = {claim.scenario: claim for claim in (*CLAIMS, *SERVING_CLAIMS, *RUN_CLAIMS)}


@command
def main(
    scenarios: Annotated[Sequence[str], f"{', '.join(sorted(SCENARIOS))}; default: all"] = (),
    *,
    write: Annotated[
        bool, "write the tables into docs/schedules.md and docs/accuracy/serving-papers.md"
    ] = False,
) -> None:
    """Print the tables of training, of serving and of runs, line by line as they are found."""
    for name in scenarios:
        named("claim", name, SCENARIOS)
    if write:
        served: dict[str, ServingRuns] = {}
        write_page(PAGE, list(rows(CLAIMS)))
        write_page(SERVING_PAGE, list(serving_rows(SERVING_CLAIMS, served)))
        write_starts({name: runs.places for name, runs in served.items()})
        return
    claims = [each for each in CLAIMS if not scenarios or each.scenario in scenarios]
    for line in rows(claims) if claims else ():
        print(line, flush=True)
    if serving := [each for each in SERVING_CLAIMS if not scenarios or each.scenario in scenarios]:
        print()
        for line in serving_rows(serving):
            print(line, flush=True)
    if not scenarios or {claim.scenario for claim in RUN_CLAIMS} & set(scenarios):
        print()
        for line in run_rows(scenarios):
            print(line, flush=True)
