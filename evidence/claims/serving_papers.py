"""Published gains of serving systems, and what the simulator says; `python -m benchmarks.papers` prints them.

A claim is either a system against the baseline of its paper, whose engine was of its time, or the mechanism
alone: both runs on one engine. The band was set before the runs (hand rooflines and stated conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import isfinite
from typing import Any

from evidence.claims.serving_by_hand import BY_HAND
from evidence.claims.serving_claims import LOWER, POLICY_CLAIMS, ServingClaim
from evidence.claims.serving_rates import PLACES, Starts, at_rate, braked, last_within, rate_at
from evidence.claims.serving_targets import slowed_too_much, smooth_rate
from meshwright.questions.keys import set_key
from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import ScenarioRun, WhatIfQuestion
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

GAP_S = 0.25
"""FastGen's target of token gaps: 4 tokens/s."""
ALONE = {"cluster": "dgx-a100-80gb", "deployment.replicas": 1}
"""The machine on which Splitwise's requests run alone."""


CLIENTS = ("base", "2 clients", "4 clients", "8 clients", "24 clients")
FASTGEN = tuple(f"FastGen{name}" for name in ("", ", 2", ", 4", ", 8", ", 24"))
KERNELS = tuple(f"FastGen's kernels alone{name}" for name in ("", ", 2", ", 4", ", 8", ", 24"))
EXACT = tuple(f"exact steps{name}" for name in ("", ", 2", ", 4", ", 8", ", 24"))
SPLIT = ("pools", "pools of one replica")
MIXED, POOLS = "replicas that do both", "prefill and decode pools"
REPLICAS = ("replicas of eight", "replicas of four", "replicas of two")
SERVING_CLAIMS = (
    ServingClaim(
        "serve-fastgen-70b",
        "requests/s within 4 tokens/s, over vLLM 0.2",
        1.42 / 0.63,
        (1.7, 2.6),
        FASTGEN,
        CLIENTS,
        "smooth",
    ),
    ServingClaim(
        "serve-fastgen-70b",
        "the same, no engine time around prompts' kernels",
        1.42 / 0.63,
        (1.7, 2.6),
        KERNELS,
        CLIENTS,
        "smooth",
    ),
    ServingClaim(
        "serve-fastgen-70b",
        "the same on one engine",
        1.42 / 0.63,
        (1.0, 2.6),
        EXACT,
        CLIENTS,
        "smooth",
        alone=True,
    ),
    ServingClaim(
        "serve-fastgen-70b",
        "P95 of token gaps, 16 clients, over vLLM 0.2",
        3.7,
        (2.5, 5.0),
        ("128 tokens, FastGen",),
        ("128 tokens",),
        "itl_s.p95",
    ),
    ServingClaim(
        "serve-fastgen-70b",
        "the same, no engine time around prompts' kernels",
        3.7,
        (2.5, 5.0),
        ("128 tokens, FastGen's kernels alone",),
        ("128 tokens",),
        "itl_s.p95",
    ),
    ServingClaim(
        "serve-fastgen-70b",
        "the same on one engine",
        3.7,
        (1.0, 5.0),
        ("128 tokens, exact steps",),
        ("128 tokens",),
        "itl_s.p95",
        alone=True,
    ),
    ServingClaim(
        "serve-sarathi-13b",
        "tokens/s of chunks of 256 over prompts and outputs apart",
        1.33,
        (1.2, 1.35),
        ("chunks of 256",),
        ("base",),
        "total_rate_per_gpu",
        alone=True,
    ),
    ServingClaim(
        "serve-sarathi-13b",
        "tokens/s of chunks of 64 over prompts and outputs apart",
        0.5,
        (0.1, 1.0),
        ("chunks of 64",),
        ("base",),
        "total_rate_per_gpu",
        alone=True,
    ),
    ServingClaim(
        "serve-sarathi-gpt3",
        "tokens/s over whole prompts in the pipeline",
        1.91,
        (1.6, 2.1),
        ("SARATHI",),
        ("base",),
        "total_rate_per_gpu",
        alone=True,
    ),
    ServingClaim(
        "serve-sarathi-gpt3",
        "tokens/s over eight tensor-parallel replicas",
        1.48,
        (1.3, 1.7),
        ("SARATHI",),
        ("tensor only",),
        "total_rate_per_gpu",
        alone=True,
    ),
    ServingClaim(
        "serve-splitwise-70b",
        f"requests/s within the slowdowns, {POOLS} over {MIXED}",
        1.4,
        (1.2, 1.6),
        ("pools", "five to three", "three to five"),
        ("base",),
        "unslowed",
        alone=True,
    ),
    ServingClaim(
        "serve-splitwise-70b",
        "the same, pools of A100 over H100 of equal power, 19 % cheaper",
        1.4,
        (1.2, 1.6),
        ("A100, eight to six", "A100, nine to five"),
        ("base",),
        "unslowed",
    ),
    ServingClaim(
        "serve-splitwise-70b",
        "the same, steps as long as the authors'",
        1.4,
        (1.2, 1.6),
        ("slow steps, A100, eight to six", "slow steps, A100, nine to five"),
        ("slow steps",),
        "unslowed",
    ),
    ServingClaim(
        "serve-splitwise-70b",
        "the same, prompts on H100 and outputs on A100, over H100 of equal power, 11 % cheaper",
        1.18,
        (1.0, 1.4),
        ("prompts on H100, outputs on A100",),
        ("base",),
        "unslowed",
    ),
    ServingClaim(
        "serve-splitwise-70b",
        "the same, steps as long as the authors'",
        1.18,
        (1.0, 1.4),
        ("slow steps, prompts on H100, outputs on A100",),
        ("slow steps",),
        "unslowed",
    ),
    ServingClaim(
        "serve-splitwise-70b",
        "the same, outputs on H100 capped at 350 W, over H100 of 31 % more power",
        1.0,
        (0.85, 1.3),
        ("outputs on capped H100", "outputs on three capped H100"),
        ("base",),
        "unslowed",
    ),
    ServingClaim(
        "serve-distserve-13b",
        "requests/s and GPU within the targets, prefill and decode pools",
        1.56,
        (1.3, 1.8),
        SPLIT,
        (),
        "sustained",
    ),
    ServingClaim(
        "serve-distserve-13b",
        "the same over vLLM, one GPU a replica",
        1.66,
        (1.5, 4.6),
        SPLIT,
        ("one GPU",),
        "sustained",
    ),
    ServingClaim(
        "serve-distserve-13b",
        "the same, prompts of at most 1,400 tokens",
        1.66,
        (1.5, 4.6),
        ("shorter prompts, pools",),
        ("shorter prompts",),
        "sustained",
    ),
    ServingClaim(
        "serve-distserve-13b",
        f"the same over {MIXED}, any degree",
        1.66,
        (1.0, 4.6),
        SPLIT,
        ("base", "two GPUs a replica", "four GPUs a replica"),
        "sustained",
        alone=True,
    ),
    ServingClaim(
        "serve-polca-row",
        "servers without a power brake over those that the power was provisioned for",
        1.30,
        (1.20, 1.35),
        ("base",),
        (),
        "unbraked",
    ),
    ServingClaim(
        "serve-apex-70b",
        "tokens/s of summaries, best plan over tensor in a node and pipeline across",
        3.37,
        (1.1, 3.4),
        REPLICAS,
        ("base",),
        "total_rate_per_gpu",
        alone=True,
    ),
    ServingClaim(
        "serve-apex-70b",
        "the same of stories",
        3.37,
        (1.1, 3.4),
        tuple(f"stories, {name}" for name in REPLICAS),
        ("stories",),
        "total_rate_per_gpu",
        alone=True,
    ),
    *POLICY_CLAIMS,
)


class ServingRuns:
    """The runs of one scenario by name, each simulated once.

    Args:
        scenario: file in ``scenarios/papers``.
        starts: where searches begin, by run.
    """

    def __init__(self, scenario: str, starts: Starts | None = None) -> None:
        self.question = WhatIfQuestion.read(shipped_scenarios()[f"papers/{scenario}"])
        self.places: dict[str, int] = {}
        self._starts = starts or {}
        self._figures: dict[tuple[str, str], float] = {}
        self._reports: dict[tuple[str, float | None], dict[str, Any]] = {}
        self._settings: dict[str, ServingSetting] = {}

    @cached_property
    def by_name(self) -> dict[str, ScenarioRun]:
        """Base and variations."""
        return {run.name: run for run in (self.question.base, *self.question.runs())}

    def value(self, name: str, metric: str) -> float:
        """A figure of one run."""
        key = name, metric
        if key not in self._figures:
            self._figures[key] = self._value(self.by_name[name], metric)
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

    def _value(self, run: ScenarioRun, metric: str) -> float:
        if metric in SEARCHED:
            return SEARCHED[metric](self, run.name)
        if metric in BY_HAND:
            return BY_HAND[metric](self.setting(run.name))
        if metric == "smooth":
            return smooth_rate(serve(self.setting(run.name), traced=True), GAP_S)
        return _figure(self.report(run.name), metric)


def _figure(report: dict[str, Any], metric: str) -> float:
    found: Any = report
    for part in metric.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return float(found)


SEARCHED: dict[str, Callable[[ServingRuns, str], float]] = {
    "sustained": ServingRuns.sustained,
    "unslowed": ServingRuns.unslowed,
    "unbraked": ServingRuns.unbraked,
}


def gain(claim: ServingClaim, runs: ServingRuns) -> float:
    """What the best of the runs gains over the best of the baseline's, times."""
    ours = [runs.value(name, claim.metric) for name in claim.runs]
    theirs = [runs.value(name, claim.metric) for name in claim.over] or [1.0]
    if claim.over and claim.metric in LOWER:
        return min(theirs) / min(ours)
    return max(ours) / max(theirs) if max(theirs) else float("inf")


def serving_rows(
    claims: Iterable[ServingClaim], known: dict[str, ServingRuns] | None = None
) -> Iterator[str]:
    """Lines of the table, in Markdown.

    Args:
        claims: the claims.
        known: runs of scenarios that are known, to which those of the others are added.
    """
    known = {} if known is None else known
    yield "| scenario | claim | published | expected | simulated | verdict |"
    yield "|---|---|---|---|---|---|"
    for claim in claims:
        if claim.scenario not in known:
            known[claim.scenario] = ServingRuns(claim.scenario)
        runs = known[claim.scenario]
        found = gain(claim, runs) if claim.measure is None else claim.measure(runs)
        figures = found if isinstance(found, tuple) else (found,)
        low, high = claim.band
        what = f"{claim.what}{' (mechanism alone)' if claim.alone else ''}"
        expected = f"{claim.published:.2f}{claim.unit} | {low:.2f}-{high:.2f}{claim.unit}"
        times = (
            f"{printed(figures, claim.band)}{claim.unit}" if isfinite(max(figures)) else "baseline at no rate"
        )
        words = verdict(figures, claim.band, gained(claim))
        yield f"| `{claim.scenario}` | {what} | {expected} | {times} | {words} |"


LEAST_GAIN = 0.005
"""Distance from 1 below which a printed gain is none."""


def gained(claim: ServingClaim) -> float | None:
    """The published gain of runs over others; None where the claim is a figure of its own."""
    return claim.published if claim.unit == "x" and (claim.over or claim.measure is not None) else None


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
    within = [low <= one <= high for one in figures]
    if published is not None and low <= 1.0 <= high and any(within):
        if abs(published - 1.0) < LEAST_GAIN:
            return "not decided"
        side = 1.0 if published > 1.0 else -1.0
        within = [
            each and side * (one - 1.0) >= LEAST_GAIN for each, one in zip(within, figures, strict=True)
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
    while digits < 4 and any(round(one, digits) == end != one for one in ends for end in band):
        digits += 1
    return "-".join(f"{one:.{digits}f}" for one in ends)
