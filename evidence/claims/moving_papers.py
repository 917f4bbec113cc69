"""Published gains of systems whose state or requests move; `python -m benchmarks.papers` prints them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from evidence.claims.serving_claims import ServingClaim, over_range
from evidence.claims.serving_papers import ServingRuns
from meshwright.questions.keys import set_key
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

LATER = 1.05
"""TTFT over that of a read in no time, at the knee."""


def blend_knee(runs: ServingRuns) -> float:
    """The slowest SSD that costs a request alone no more than 5 %, over that whose reads take as long as
    computing the share again."""
    run = runs.by_name["SSD"]
    data = set_key(run.data, "workload.arrivals.rate", 0.05, run.folder, run.where)
    data = set_key(data, "workload.requests", 300, run.folder, run.where)

    def ttft(rate: float) -> float:
        key = "cluster.node.ssds.read_bytes_s"
        setting = make_serving(set_key(data, key, rate, run.folder, run.where), run.where, run.folder)
        found = serve(setting).metrics.latencies["ttft"]
        return found.mean if found is not None else float("inf")

    pool, chunks = make_serving(data, run.where, run.folder).pools[0], data["workload"]["chunks"]
    tokens = chunks["per_prompt"] * chunks["tokens"]
    again = int(data["deployment"]["tiers"][0]["recompute"] * tokens)
    whole = tokens + int(data["workload"]["input"])
    computing = pool.costs.steps.step(((whole - tokens + again, tokens - again),), 0, 0)
    expected = tokens * pool.costs.kv_token_bytes / computing
    least, low, high = ttft(6e9), 0.05 * expected, min(2.0 * expected, 6e9)
    for _ in range(7):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if ttft(middle) <= LATER * least else (middle, high)
    return high / expected


def over(
    scenario: str,
    what: str,
    published: float,
    band: tuple[float, float],
    run: str,
    base: str = "base",
    metric: str = "ttft_s.mean",
) -> ServingClaim:
    """A claim that compares two runs on one engine."""
    return ServingClaim(scenario, what, published, band, (run,), (base,), metric, alone=True)


RATES = ("", *(f", rate {rate}" for rate in (32, 38, 40, 42, 44)))


def up_to(base: str, metric: str) -> Callable[[ServingRuns], float]:
    """The largest gain of Llumnix over a baseline at any of the rates, as "up to" says."""

    def best(runs: ServingRuns) -> float:
        theirs = [f"{base}{rate}" if base else rate.removeprefix(", ") or "base" for rate in RATES]
        pairs = zip(theirs, [f"Llumnix{rate}" for rate in RATES], strict=True)
        return max(runs.value(one, metric) / runs.value(other, metric) for one, other in pairs)

    return best


def flat(runs: ServingRuns) -> float:
    """The longest over the shortest stop of prompts of 256 to 8,192 tokens."""
    stops = [runs.value(f"stop {tokens}", STOP) for tokens in (256, 1024, 8192)]
    return max(stops) / min(stops)


KEPT = 0.95
"""Share of the programs that must meet their deadline."""


def deadline_rate(runs: ServingRuns, name: str) -> float:
    """The largest rate of programs at which enough of them meet their deadline, a second."""
    return runs.largest_rate(name, lambda rate: (runs.report(name, rate)["deadlines_met"] or 0.0) >= KEPT)


SCALES = (3, 10)
"""Deadlines over the mean time of a program alone, where a claim leaves them open."""


def over_deadlines(
    measure: Callable[[str, str], Callable[[ServingRuns], float]], base: str, ours: str
) -> Callable[[ServingRuns], tuple[float, ...]]:
    """A measure at the scenario's deadlines, named ``"deadline SCALE"``."""
    return lambda runs: tuple(
        measure(*(f"deadline {scale}, {run}" if run else f"deadline {scale}" for run in (base, ours)))(runs)
        for scale in SCALES
    )


def more_programs(base: str, ours: str) -> Callable[[ServingRuns], float]:
    """The largest rate of programs within the deadline over that of a baseline."""
    return lambda runs: deadline_rate(runs, ours) / deadline_rate(runs, base)


def shorter_deadline(base: str, ours: str) -> Callable[[ServingRuns], float]:
    """The deadline that 95 % meet, a baseline's over ours, at the baseline's largest rate within its own."""

    def gain(runs: ServingRuns) -> float:
        rate = deadline_rate(runs, base)
        before, after = (runs.report(name, rate)["program_s"]["p95"] for name in (base, ours))
        return before / after

    return gain


DYNASOR = "serve-dynasor-8b"
FLEX = "serve-flexllm-8b"
PIPE = "serve-pipeinfer-70b"
SQL = "serve-text2sql-70b"
RATE = "total_rate_per_gpu"
BATCH = "serve-batchllm-8b"
SWITCH = "serve-fastswitch-8b"
STOP = "migrations.stop_mean_s"
LLUMNIX = "serve-llumnix-7b"
BLEND = "serve-cacheblend-7b"
MOVING_CLAIMS = (
    over(BLEND, "TTFT of computing all over texts in host memory, 16 % again", 3.3, (2.0, 3.5), "host"),
    over(BLEND, "the same, requests alone", 3.3, (2.0, 3.5), "alone, host", "alone"),
    over(BLEND, "the same, texts on SSD", 3.3, (2.0, 3.5), "SSD"),
    over(BLEND, "the same, texts beyond a small host tier on SSD", 3.3, (2.0, 3.5), "small host before SSD"),
    over(BLEND, "the same, over a network of 10 Gb/s: reads take longer", 1.0, (1.0, 2.0), "network"),
    over(
        BLEND,
        "the same, host memory, of texts that do not return",
        1.0,
        (0.9, 1.2),
        "few texts return, host",
        "few texts return",
    ),
    over(BLEND, "TTFT of computing all over nothing computed again (APE)", 4.5, (2.0, 12.0), "APE"),
    ServingClaim(
        BLEND,
        "slowest SSD that costs 5 % of TTFT, over load = share of prefill computed again",
        1.0,
        (0.7, 1.4),
        (),
        (),
        "",
        measure=blend_knee,
    ),
    *(
        ServingClaim(LLUMNIX, f"{what} over {over_what}", gain, band, (), (), "", measure=up_to(base, metric))
        for over_what, base, mean, tail in (
            ("round robin", "", 6.4, 12.1),
            ("queue lengths", "queue", 4.6, 9.1),
        )
        for what, metric, gain, band in (
            ("mean TTFT", "ttft_s.mean", mean, (1.0, inf)),
            ("P99 of TTFT", "ttft_s.p99", tail, (2.0 if base else 3.0, inf)),
        )
    ),
    ServingClaim(
        LLUMNIX,
        "the same over the same router without moves",
        1.0,
        (1.0, 9.1),
        (),
        (),
        "",
        alone=True,
        measure=up_to("freeness", "ttft_s.p99"),
    ),
    ServingClaim(
        LLUMNIX, "longest over shortest stop, 256 to 8K tokens", 1.0, (1.0, 1.3), (), (), "", measure=flat
    ),
    ServingClaim(
        LLUMNIX,
        "stop of 8,192 tokens",
        0.03,
        (0.014, 0.039),
        ("stop 8192",),
        (),
        STOP,
        unit=" s",
    ),
    ServingClaim(
        LLUMNIX,
        "stop of 8,192 tokens that are computed again",
        3.5,
        (1.0, 4.6),
        ("recomputed 8192",),
        (),
        STOP,
        unit=" s",
    ),
    over_range(
        SWITCH,
        "P99 of TTFT over vLLM's swaps, priorities drawn every 20, 5 and 1 s",
        11.2,
        (1.3, 6.0),
        (("FastSwitch, every 20", "every 20"), ("FastSwitch", "base"), ("FastSwitch, every 1", "every 1")),
        "ttft_s.p99",
    ),
    over(SWITCH, "the same, groups alone, every 5 s", 11.2, (1.0, 6.0), "groups alone", "base", "ttft_s.p99"),
    *(
        over(
            BATCH,
            what,
            published,
            band,
            f"{run}grouped",
            run.removesuffix(", ") or "base",
            "total_rate_per_gpu",
        )
        for what, published, band, run in (
            ("tokens/s over file order, prefixes of 2,048 tokens shared by 4", 2.0, (1.1, 2.0), ""),
            ("the same, shared by 2", 1.1, (1.1, 2.0), "shared by 2, "),
            ("the same, shared by 16", 2.0, (1.1, 2.0), "shared by 16, "),
            ("the same, prefixes of 512 tokens", 1.1, (1.1, 2.0), "short prefix, "),
            ("the same, all prefixes fit in memory", 1.0, (0.9, 1.1), "all fit, "),
        )
    ),
    *(
        ServingClaim(
            SQL,
            f"{what}, {cluster}",
            gain,
            (1.2, 1.75),
            (),
            (),
            "",
            measure=over_deadlines(measure, base, ours),
        )
        for cluster, base, ours in (
            ("two A100, A6000, L40S", "", "HexGen"),
            ("two A100, two A6000", "pairs", "pairs, HexGen"),
        )
        for what, gain, measure in (
            (
                "P95 of a program over that of round robin and FCFS, deadlines of 3 and 10 mean times",
                1.41,
                shorter_deadline,
            ),
            (
                "programs/s within deadlines of 3 and 10 mean times, over round robin and FCFS",
                1.65,
                more_programs,
            ),
        )
    ),
    *(
        ServingClaim(
            SQL,
            what,
            gain,
            (1.0, 1.75),
            (),
            (),
            "",
            alone=True,
            measure=over_deadlines(shorter_deadline, "", ours),
        )
        for what, gain, ours in (
            ("P95 of a program, urgency alone", 1.41, "urgency"),
            ("P95 of a program, dispatch alone", 1.41, "dispatch"),
        )
    ),
    *(
        over(PIPE, what, published, band, ours, theirs, "itl_s.mean")
        for what, published, band, ours, theirs in (
            (
                "time a token of drafts in turns over drafts beside the pipeline",
                2.15,
                (1.3, 2.2),
                "PipeInfer",
                "base",
            ),
            ("the same, acceptance 0.3", 2.15, (1.3, 2.2), "low acceptance, PipeInfer", "low acceptance"),
            ("the same, no draft, acceptance 0.3", 1.0, (1.0, 2.2), "low acceptance, PipeInfer", "no draft"),
        )
    ),
    ServingClaim(
        FLEX,
        "fine-tuning under load, of devices that do nothing else",
        0.8,
        (0.6, 1.0),
        ("base",),
        (),
        "finetuning.share_of_peak",
    ),
    ServingClaim(
        FLEX,
        "the same, of fine-tuning beside a fifth of the load (band set after the first run)",
        0.8,
        (0.6, 1.0),
        ("base",),
        ("light load",),
        "finetuning.share_of_peak",
    ),
    ServingClaim(FLEX, "requests within a TPOT of 50 ms", 1.0, (0.9, 1.0), ("base",), (), "slo_share"),
    *(
        ServingClaim(DYNASOR, what, gain, band, (), (), "", alone=True, measure=more_programs("base", ours))
        for what, gain, band, ours in (
            (
                "programs/s within the deadline, stop and gangs over 16 answers",
                3.3,
                (1.5, 3.3),
                "Dynasor",
            ),
            ("the same, stop alone", 3.3, (1.0, 3.3), "stop"),
            ("the same, gangs alone", 1.0, (0.9, 3.3), "gang"),
            ("the same, programs that are never certain before the end", 1.0, (0.5, 1.0), "never certain"),
        )
    ),
)
