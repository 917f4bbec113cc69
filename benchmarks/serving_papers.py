"""Published gains of serving systems, and what the simulator says; `python -m benchmarks.papers` prints them.

A claim is either a system against the baseline of its paper, whose engine was of its time, or the mechanism
alone: both runs on one engine. The band was set before the runs (hand rooflines and stated conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from math import isfinite
from typing import Any

from benchmarks.serving_claims import LOWER, POLICY_CLAIMS, ServingClaim
from benchmarks.serving_targets import slowed_too_much, smooth_rate
from hwmodels.errors import InputError
from meshwright.questions.keys import set_key
from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import ScenarioRun, WhatIfQuestion
from simulator.ops.counts import flops_per_token, model_parameters
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving
from simulator.serving.setting import ServingSetting

HALVINGS = 8
"""Of a search for the largest rate within the targets: to 2 %."""
RATES = (1 / 16, 4.0)
"""Where that search begins and ends, over the scenario's rate."""
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


Within = Callable[[ServingResult], bool]
"""Whether a run is within its targets."""


class ServingRuns:
    """The runs of one scenario by name, each simulated once."""

    def __init__(self, scenario: str) -> None:
        self.question = WhatIfQuestion.read(shipped_scenarios()[f"papers/{scenario}"])
        self._found: dict[tuple[str, str], float] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._largest: dict[tuple[str, Within], float] = {}

    @cached_property
    def by_name(self) -> dict[str, ScenarioRun]:
        """Base and variations."""
        return {run.name: run for run in (self.question.base, *self.question.runs())}

    def value(self, name: str, metric: str) -> float:
        """A figure of one run."""
        key = name, metric
        if key not in self._found:
            self._found[key] = self._value(self.by_name[name], metric)
        return self._found[key]

    def report(self, name: str) -> dict[str, Any]:
        """The report of one run."""
        if name not in self._reports:
            run = self.by_name[name]
            self._reports[name] = serve(make_serving(run.data, run.where, run.folder)).to_dict()
        return self._reports[name]

    def largest_rate(self, name: str, within: Within) -> float:
        """See `largest_rate`."""
        key = name, within
        if key not in self._largest:
            self._largest[key] = largest_rate(self.by_name[name], within)
        return self._largest[key]

    def _value(self, run: ScenarioRun, metric: str) -> float:
        if metric == "sustained":
            return sustained(run)
        if metric == "unslowed":
            return unslowed(run)
        if metric == "unbraked":
            return unbraked(run)
        if metric in BY_HAND:
            return BY_HAND[metric](make_serving(run.data, run.where, run.folder))
        if metric == "smooth":
            setting = make_serving(run.data, run.where, run.folder)
            return smooth_rate(serve(setting, traced=True), GAP_S)
        return _figure(self.report(run.name), metric)


def _figure(report: dict[str, Any], metric: str) -> float:
    found: Any = report
    for part in metric.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return float(found)


def _products(setting: ServingSetting) -> float:
    """Tokens a second and GPU of products alone at their settled rate."""
    return setting.cluster.device.settled("bf16") / (2.0 * model_parameters(setting.model))


def _prompt(setting: ServingSetting) -> float:
    """Mean tokens of a prompt."""
    lengths = setting.serving.input
    if lengths is None:
        raise InputError("a claim on prompts needs their lengths", f"{setting.where}: workload.input")
    return float(lengths.mean())


def _kv_gb(setting: ServingSetting) -> float:
    """KV of a prompt, GB."""
    return _prompt(setting) * setting.pools[0].costs.kv_token_bytes / 1e9


def _users(setting: ServingSetting) -> float:
    """Prompts whose KV fits beside the weights of one device."""
    room = setting.cluster.device.memory_bytes - setting.pools[0].costs.weight_bytes
    return room / 1e9 / _kv_gb(setting)


def _peak_prefill(setting: ServingSetting) -> float:
    """Seconds of a prompt's FLOPs at the peak of one device."""
    tokens = _prompt(setting)
    flops = tokens * float(flops_per_token(setting.model, tokens, causal=True))
    return flops / setting.cluster.device.peak("bf16")


def _peak_token(setting: ServingSetting) -> float:
    """Milliseconds to read the weights and a prompt's KV at the bandwidth of one device."""
    read = setting.pools[0].costs.weight_bytes + 1e9 * _kv_gb(setting)
    return 1e3 * read / setting.cluster.device.memory_bandwidth


BY_HAND: dict[str, Callable[[ServingSetting], float]] = {
    "peak_prefill": _peak_prefill,
    "peak_token": _peak_token,
    "products": _products,
    "kv_gb": _kv_gb,
    "users": _users,
}


def sustained(run: ScenarioRun) -> float:
    """The largest rate at which the share of requests within the targets is kept, a second and GPU."""
    setting = make_serving(run.data, run.where, run.folder)
    share = setting.serving.slo.share

    def within(result: ServingResult) -> bool:
        met = result.metrics.slo_share
        return met is not None and met >= share

    return largest_rate(run, within) / setting.gpus


def unslowed(run: ScenarioRun) -> float:
    """The largest rate within Splitwise's slowdowns against requests alone on a DGX A100, a second."""
    data = run.data
    for key, value in ALONE.items():
        data = set_key(data, key, value, run.folder, run.where)
    deployment = {key: value for key, value in data["deployment"].items() if key != "pools"}
    steps = make_serving({**data, "deployment": deployment}, run.where, run.folder).pools[0].costs.steps
    return largest_rate(run, lambda result: not slowed_too_much(result, steps))


def unbraked(run: ScenarioRun) -> float:
    """The most servers whose row needs no power brake, over those that its power was provisioned for.

    Every server brings its share of the load.
    """
    provisioned = int(run.data["deployment"]["power_policy_options"]["servers"])
    arrivals, given = run.data["workload"]["arrivals"], int(run.data["deployment"]["replicas"])

    def fits(servers: int) -> bool:
        rates = [rate * servers / given for rate in arrivals["rates"]]
        data = set_key(run.data, "workload.arrivals.rates", rates, run.folder, run.where)
        data = set_key(data, "deployment.replicas", servers, run.folder, run.where)
        row = serve(make_serving(data, run.where, run.folder)).row
        return row is not None and row.brakes == 0

    low, high = provisioned, 2 * provisioned
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low / provisioned


def largest_rate(run: ScenarioRun, within: Within) -> float:
    """The largest rate of arrivals at which a run is within its targets; 0 where none in the range is."""
    rate = float(run.data["workload"]["arrivals"]["rate"])
    setting = make_serving(run.data, run.where, run.folder)
    serving = setting.serving
    low, high, found = rate * RATES[0], rate * RATES[1], 0.0
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        arrivals = serving.arrivals.model_copy(update={"rate": middle})
        at_rate = replace(setting, serving=serving.model_copy(update={"arrivals": arrivals}))
        if within(serve(at_rate)):
            low = found = middle
        else:
            high = middle
    return found


def gain(claim: ServingClaim, runs: ServingRuns) -> float:
    """What the best of the runs gains over the best of the baseline's, times."""
    ours = [runs.value(name, claim.metric) for name in claim.runs]
    theirs = [runs.value(name, claim.metric) for name in claim.over] or [1.0]
    if claim.over and claim.metric in LOWER:
        return min(theirs) / min(ours)
    return max(ours) / max(theirs) if max(theirs) else float("inf")


def serving_rows(asked: list[str], claims: Iterable[ServingClaim] = SERVING_CLAIMS) -> Iterator[str]:
    """Lines of the table, in Markdown; claims of the scenarios asked for, or all."""
    yield "| scenario | claim | published | expected | simulated | verdict |"
    yield "|---|---|---|---|---|---|"
    known: dict[str, ServingRuns] = {}
    for claim in claims:
        if asked and claim.scenario not in asked:
            continue
        runs = known.setdefault(claim.scenario, ServingRuns(claim.scenario))
        found = gain(claim, runs) if claim.measure is None else claim.measure(runs)
        figures = found if isinstance(found, tuple) else (found,)
        low, high = claim.band
        what = f"{claim.what}{' (mechanism alone)' if claim.alone else ''}"
        expected = f"{claim.published:.2f}{claim.unit} | {low:.2f}-{high:.2f}{claim.unit}"
        times = (
            f"{printed(figures, claim.band)}{claim.unit}" if isfinite(max(figures)) else "baseline at no rate"
        )
        yield f"| `{claim.scenario}` | {what} | {expected} | {times} | {verdict(figures, claim.band)} |"


def verdict(figures: tuple[float, ...], band: tuple[float, float]) -> str:
    """Whether a figure is inside its band; of a range, at how many of its points."""
    low, high = band
    inside = sum(low <= one <= high for one in figures)
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
