"""Published gains of serving systems, and what the simulator says; `python -m benchmarks.papers` prints them.

A claim is either a system against the baseline of its paper, whose engine was of its time, or the mechanism
alone: both runs on one engine. ``serving.yaml`` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import isfinite

from pydantic import field_validator

from core.errors import UnknownNameError
from evidence.claims.claim_files import Band, Pairs, PaperClaim, RunNames, read_claims
from evidence.claims.serving_runs import LOWER, ServingRuns
from meshwright.questions.keys import set_key
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

LATER = 1.05
"""TTFT over that of a read in no time, at the knee."""


def slowest_ssd(claim: ServingClaim, runs: ServingRuns) -> float:
    """The slowest SSD that costs a request alone no more than 5 %, over that whose reads take as long as
    computing the share again (CacheBlend)."""
    run = runs.by_name["SSD"]
    data = set_key(run.data, "workload.arrivals.rate", 0.05, run.folder, run.where)
    data = set_key(data, "workload.requests", 300, run.folder, run.where)

    def ttft(rate: float) -> float:
        key = "cluster.node.ssds.read_bytes_s"
        setting = make_serving(set_key(data, key, rate, run.folder, run.where), run.where, run.folder)
        latency = serve(setting).metrics.latencies["ttft"]
        return latency.mean if latency is not None else float("inf")

    pool, chunks = make_serving(data, run.where, run.folder).pools[0], data["workload"]["chunks"]
    tokens = chunks["per_prompt"] * chunks["tokens"]
    again = int(data["deployment"]["tiers"][0]["recompute"] * tokens)
    prompt = tokens + int(data["workload"]["input"])
    computing = pool.costs.steps.step(((prompt - tokens + again, tokens - again),), 0, 0)
    expected = tokens * pool.costs.kv_token_bytes / computing
    least, low, high = ttft(6e9), 0.05 * expected, min(2.0 * expected, 6e9)
    for _ in range(7):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if ttft(middle) <= LATER * least else (middle, high)
    return high / expected


def stop_range(claim: ServingClaim, runs: ServingRuns) -> float:
    """The longest over the shortest stop of the runs."""
    stops = [runs.value(name, claim.metric) for name in claim.runs]
    return max(stops) / min(stops)


def largest_gain(claim: ServingClaim, runs: ServingRuns) -> float:
    """The largest gain of the pairs, as "up to" says."""
    return max(pair_gains(claim, runs))


def shorter_deadlines(claim: ServingClaim, runs: ServingRuns) -> tuple[float, ...]:
    """The deadline that 95 % meet, a baseline's over ours, at the baseline's largest rate within its own."""
    ratios = []
    for ours, base in claim.pairs:
        rate = runs.value(base, "programs_in_time")
        before, after = (runs.report(name, rate)["program_s"]["p95"] for name in (base, ours))
        ratios.append(before / after)
    return tuple(ratios)


MEASURES: dict[str, Callable[[ServingClaim, ServingRuns], float | tuple[float, ...]]] = {
    "largest_gain": largest_gain,
    "shorter_deadlines": shorter_deadlines,
    "slowest_ssd": slowest_ssd,
    "stop_range": stop_range,
}
"""Measures of all runs, by name."""


class ServingClaim(PaperClaim):
    """A published gain or figure of serving."""

    published: float
    """The paper's gain, times, or its figure."""
    band: Band
    """Gains that count as agreement."""
    runs: RunNames = ()
    """Names of runs, of which the best counts."""
    over: RunNames = ()
    """The same of the baseline; none: the figure itself is claimed."""
    pairs: Pairs = ()
    """Instead of both: runs, each over its own baseline, over an input that the paper leaves open."""
    metric: str = ""
    """Figure of a run, as `ServingRuns.value` names it."""
    measure: str = ""
    """One of `MEASURES`, where no gain of runs over others is claimed."""
    alone: bool = False
    """Both run on one engine: the mechanism alone."""
    unit: str = "x"
    """Of the figures."""
    scale: float = 1.0
    """The unit's, over the metric's."""

    @field_validator("measure")
    @classmethod
    def _has_its_measure(cls, name: str) -> str:
        if name and name not in MEASURES:
            raise ValueError(str(UnknownNameError("measure", name, MEASURES)))
        return name

    @property
    def ranges(self) -> bool:
        """Whether more than one run over another, or all runs together, are measured."""
        return bool(self.measure or self.pairs)


SERVING_CLAIMS = read_claims("serving", ServingClaim)


def pair_gains(claim: ServingClaim, runs: ServingRuns) -> tuple[float, ...]:
    """What each pair of runs gains, times."""
    values = [(runs.value(ours, claim.metric), runs.value(base, claim.metric)) for ours, base in claim.pairs]
    return tuple(base / ours if claim.metric in LOWER else ours / base for ours, base in values)


def gain(claim: ServingClaim, runs: ServingRuns) -> float:
    """What the best of the runs gains over the best of the baseline's, times; a figure in the unit."""
    ours = [runs.value(name, claim.metric) for name in claim.runs]
    theirs = [runs.value(name, claim.metric) for name in claim.over] or [1.0]
    if claim.over and claim.metric in LOWER:
        return min(theirs) / min(ours)
    return claim.scale * max(ours) / max(theirs) if max(theirs) else float("inf")


def figures_of(claim: ServingClaim, runs: ServingRuns) -> tuple[float, ...]:
    """The simulated gain or figure; several where a range is measured; no bits that processors differ in."""
    if claim.measure:
        measured = MEASURES[claim.measure](claim, runs)
        figures = measured if isinstance(measured, tuple) else (measured,)
    else:
        figures = pair_gains(claim, runs) if claim.pairs else (gain(claim, runs),)
    return tuple(round(figure, DIGITS) for figure in figures)


def serving_rows(
    claims: Iterable[ServingClaim], runs_of: dict[str, ServingRuns] | None = None
) -> Iterator[str]:
    """Lines of the table, in Markdown.

    Args:
        claims: the claims.
        runs_of: runs of scenarios, to which those that lack are added.
    """
    runs_of = {} if runs_of is None else runs_of
    yield "| scenario | claim | published | expected | simulated | verdict |"
    yield "|---|---|---|---|---|---|"
    for claim in claims:
        if claim.scenario not in runs_of:
            runs_of[claim.scenario] = ServingRuns(claim.scenario)
        runs = runs_of[claim.scenario]
        figures = figures_of(claim, runs)
        low, high = claim.band
        what = f"{claim.what}{' (mechanism alone)' if claim.alone else ''}"
        expected = f"{claim.published:.2f}{claim.unit} | {low:.2f}-{high:.2f}{claim.unit}"
        times = (
            f"{printed(figures, claim.band)}{claim.unit}" if isfinite(max(figures)) else "baseline at no rate"
        )
        words = verdict(figures, claim.band, gained(claim))
        yield f"| `{claim.scenario}` | {what} | {expected} | {times} | {words} |"


DIGITS = 9
"""Digits after the point of a simulated figure."""
LEAST_GAIN = 0.005
"""Distance from 1 below which a printed gain is none."""


def gained(claim: ServingClaim) -> float | None:
    """The published gain of runs over others; None where the claim is a figure of its own."""
    return claim.published if claim.unit == "x" and (claim.over or claim.ranges) else None


def verdict(figures: tuple[float, ...], band: tuple[float, float], published: float | None = None) -> str:
    """Whether a figure is inside its band; of a range, at how many of its points.

    A run without its mechanism is its baseline, and gains 1. Where the band holds 1, a figure is inside only
    on the published side of it; a claim of no gain is not decided: it is inside without its mechanism too.

    Args:
        figures: simulated gains or figures.
        band: least and most that count as agreement.
        published: gain; None: the claim is no gain.
    """
    low, high = band
    within = [low <= figure <= high for figure in figures]
    if published is not None and low <= 1.0 <= high and any(within):
        if abs(published - 1.0) < LEAST_GAIN:
            return "not decided"
        side = 1.0 if published > 1.0 else -1.0
        within = [
            each and side * (figure - 1.0) >= LEAST_GAIN for each, figure in zip(within, figures, strict=True)
        ]
        if not any(within):
            return "no gain"
    inside = sum(within)
    if 0 < inside < len(figures):
        return f"inside at {inside} of {len(figures)}"
    return "inside" if inside else "below" if max(figures) < low else "above"


def printed(figures: tuple[float, ...], band: tuple[float, float]) -> str:
    """A figure or the ends of a range, with the digits that tell them from the band's ends."""
    ends = (min(figures), max(figures)) if len(figures) > 1 else figures
    digits = 2
    while digits < 4 and any(round(figure, digits) == end != figure for figure in ends for end in band):
        digits += 1
    return "-".join(f"{figure:.{digits}f}" for figure in ends)
