"""Published figures of serving policies beyond engines and pools; `benchmarks.serving_papers` has the others.

Bands were set before the runs; that of a row of issue 23 is the issue's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOWER = ("itl_s.p95", "itl_s.mean", "ttft_s.mean", "ttft_s.p99", "e2e_s.mean", "e2e_s.p99")
"""Figures of which less is better."""


@dataclass(frozen=True)
class ServingClaim:
    """A published gain of serving.

    Attributes:
        scenario: file in ``scenarios/papers``.
        what: what gains over what.
        published: the paper's gain, times.
        band: gains that count as agreement, set before looking.
        runs: names of runs, of which the best counts.
        over: the same of the baseline; none: the figure itself is claimed.
        metric: key of the report, dotted; or ``sustained``: requests a second and GPU within the targets;
            ``unslowed``: requests a second within Splitwise's; ``smooth``: within FastGen's;
            ``products``: tokens a second and GPU if products ran at their settled rate and nothing else;
            ``kv_gb``: KV of a prompt, ``users``: prompts that fit beside the weights; ``peak_prefill`` and
            ``peak_token``: FLOPs of a prompt and bytes of a token at the data sheet's rates;
            ``unbraked``: servers of a row without a power brake, over those that it was provisioned for.
        alone: both run on one engine: the mechanism alone.
        unit: of the figures.
        measure: of all runs (`serving_papers.ServingRuns`), where no gain of runs over others is claimed;
            several figures over the range of an input that the paper leaves open.
    """

    scenario: str
    what: str
    published: float
    band: tuple[float, float]
    runs: tuple[str, ...]
    over: tuple[str, ...]
    metric: str
    alone: bool = False
    unit: str = "x"
    measure: Callable[[Any], float | tuple[float, ...]] | None = None


def _ladder() -> tuple[ServingClaim, ...]:
    """DeepFlow's table: seconds to load weights from SSD, host, a peer's NICs and a peer's links."""
    table = {"8B": (3.3, 1.1, 0.71, 0.15), "34B": (11, 2.1, 0.76, 0.16), "72B": (24, 3.2, 0.91, 0.19)}
    return tuple(
        ServingClaim(
            "serve-deepflow-starts",
            f"seconds to load the weights of {size} from {place}",
            seconds,
            (round(0.6 * seconds, 3), round(1.4 * seconds, 3)),
            ("base" if (size, place) == ("8B", "disk") else f"{size} {place}",),
            (),
            "starts.mixed.0.load",
            unit=" s",
        )
        for size, row in table.items()
        for place, seconds in zip(("disk", "host", "peer", "fork"), row, strict=True)
    )


STARTS = (
    *_ladder(),
    ServingClaim(
        "serve-scale-to-zero-8b",
        "dollars of one replica that never stops over those of scaling to zero",
        2.0,
        (1.2, 20.0),
        ("always on",),
        ("base",),
        "dollars_per_million",
        alone=True,
    ),
    ServingClaim(
        "serve-scale-to-zero-8b",
        "P99 of TTFT, engines that start from disk over engines asleep in host memory",
        97.6 / 5.3,
        (3.0, 40.0),
        ("asleep",),
        ("base",),
        "ttft_s.p99",
        alone=True,
    ),
)


def _punica(what: str, published: float, band: tuple[float, float], ours: str, theirs: str) -> ServingClaim:
    """Tokens/s of mixed batches over one model at a time."""
    runs, over = (ours,), (theirs,)
    return ServingClaim("serve-punica-7b", what, published, band, runs, over, "output_rate", alone=True)


ADAPTERS = (
    _punica("tokens/s over one model at a time, adapters distinct", 12.0, (8.0, 20.0), "distinct", "base"),
    _punica("the same, 70B on eight GPUs", 443 / 23, (8.0, 20.0), "70B", "70B, one model"),
    _punica("the same, 20 adapters asked for equally", 12.0, (1.5, 20.0), "uniform", "uniform, one model"),
    _punica("the same, Zipf 1.5 over 20 adapters", 12.0, (1.5, 20.0), "zipf", "zipf, one model"),
    _punica("the same, all one adapter", 789 / 1140, (0.65, 0.95), "identical", "identical, one model"),
)


def over_range(
    scenario: str,
    what: str,
    published: float,
    band: tuple[float, float],
    pairs: tuple[tuple[str, str], ...],
    metric: str,
) -> ServingClaim:
    """Gains of runs over others, on one engine, over an input that the paper leaves open."""

    def gains(runs: Any) -> tuple[float, ...]:
        values = [(runs.value(ours, metric), runs.value(theirs, metric)) for ours, theirs in pairs]
        return tuple(theirs / ours if metric in LOWER else ours / theirs for ours, theirs in values)

    return ServingClaim(scenario, what, published, band, (), (), metric, alone=True, measure=gains)


def _over(
    scenario: str, what: str, published: float, band: tuple[float, float], ours: str, theirs: str, metric: str
) -> ServingClaim:
    """A figure of one run over that of another, on one engine."""
    return ServingClaim(scenario, what, published, band, (ours,), (theirs,), metric, alone=True)


NANO, RATE = "serve-nanoflow-70b", "total_rate_per_gpu"
ISO_LENGTHS = ("2K, ", "", "32K, ", "64K, ")
OVERLAPS = (
    _over(
        NANO, "tokens/s of nano-batches without overlap", 0.868, (0.82, 0.92), "pieces alone", "base", RATE
    ),
    _over(NANO, "the same, all-reduces hidden", 1.07, (1.03, 1.12), "network", "base", RATE),
    over_range(
        NANO,
        "the same, attention too, 0.2 to 0.5 of its time exposed",
        1.17,
        (1.10, 1.25),
        (("network and memory, 0.2", "base"), ("network and memory", "base")),
        RATE,
    ),
    ServingClaim(
        NANO, "tokens/s and GPU of products alone", 1857, (1801, 1913), ("base",), (), "products", unit=""
    ),
    over_range(
        "serve-iso-30b",
        "TTFT over that of halves, 4 RTX 4090, all-reduces of 8 bits, prompts of 2,000 to 64,000 tokens",
        1 / 0.65,
        (1.33, 1.82),
        tuple((f"8 bits, {run}halves", f"8 bits{run and ', '}{run[:-2]}") for run in ISO_LENGTHS),
        "ttft_s.mean",
    ),
    _over(
        "serve-iso-30b",
        "the same, 70B on A800",
        1 / 0.85,
        (1.087, 1.176),
        "A800, halves",
        "A800",
        "ttft_s.mean",
    ),
    _over("serve-ladder-70b", "request time over Ladder's", 1.29, (1.2, 1.4), "ladder", "base", "e2e_s.mean"),
    _over(
        "serve-ladder-70b",
        "the same, an engine with its own all-reduce",
        1.29,
        (1.0, 1.4),
        "own all-reduce, ladder",
        "own all-reduce",
        "e2e_s.mean",
    ),
    _over("serve-ladder-70b", "TTFT over Kraken's", 1 / 0.644, (1.0, 1.6), "kraken", "base", "ttft_s.mean"),
    _over(
        "serve-two-batches-671b",
        "tokens/s of prompts, two micro batches",
        1.3,
        (1.0, 2.0),
        "two batches",
        "base",
        RATE,
    ),
    _over(
        "serve-two-batches-671b",
        "the same of short decodes: no gain",
        1.0,
        (0.5, 1.0),
        "decodes, two batches",
        "decodes",
        RATE,
    ),
)


def _draft(run: str, published: float, band: tuple[float, float] | None = None) -> ServingClaim:
    """Request time without over that with a draft; within 20 % of the measured pair."""
    band = band or (round(0.8 * published, 2), round(1.2 * published, 2))
    ours = "draft" if run == "base" else f"draft, {run}"
    what = f"request time over that with a draft, {'1 sequence, 128 tokens' if run == 'base' else run}"
    return _over("serve-speculation-batch-7b", what, published, band, ours, run, "e2e_s.p99")


SPECULATION = (
    _draft("base", 1.386),
    _draft("256 tokens", 1.321),
    _draft("512 tokens", 1.297),
    _draft("1024 tokens", 1.052),
    _draft("8 sequences", 1.0, (1.0, 1.6)),
    _draft("32 sequences", 1.0, (0.4, 1.0)),
    _draft("64 sequences", 0.561),
    _draft("64 sequences, 256 tokens", 0.568),
)

EXFLOW = "serve-exflow-moe"
PLACEMENT = (
    _over(EXFLOW, "tokens/s of 8 experts on one node, placed", 1.5, (1.0, 2.2), "placed", "base", RATE),
    _over(
        EXFLOW, "the same, 16 experts on two nodes", 2.2, (1.2, 2.2), "two nodes, placed", "two nodes", RATE
    ),
    _over(EXFLOW, "the same, 60 experts, 12 GPUs", 2.2, (1.2, 2.2), "60 experts, placed", "60 experts", RATE),
)

BURSTS = "serve-bursts-8b"
ARRIVALS = (
    *(
        over_range(
            BURSTS,
            f"P99 of TTFT over that of Poisson, CV {cv}, four seeds",
            3.0,
            (1.5, 5.0),
            tuple((f"seed {seed}", f"seed {seed}, cv {cv}") for seed in range(4)),
            "ttft_s.p99",
        )
        for cv in (2, 4)
    ),
)

SWIFT = "serve-swiftkv-70b"
STATE = (
    _over(
        SWIFT, "tokens/s of prompts that skip half of the layers", 2.0, (1.5, 2.1), "swiftkv", "base", RATE
    ),
    ServingClaim(SWIFT, "prompt tokens/s", 16000, (13000, 19000), ("swiftkv",), (), "input_rate", unit=""),
    _over(
        SWIFT, "tokens/s, outputs as long as prompts", 1.2, (1.0, 1.6), "outputs, swiftkv", "outputs", RATE
    ),
)

STREAM = "serve-streaming-30b"
STREAMING = (
    _over(STREAM, "tokens/s over those without prefetch", 1.5, (1.0, 2.0), "base", "no prefetch", RATE),
    _over(STREAM, "tokens/s from the host over those from SSD", 2.0, (1.0, 10.0), "base", "from SSD", RATE),
    _over(STREAM, "tokens/s of 32 sequences over one", 10, (4.0, 32.0), "base", "one at a time", RATE),
)

MARLIN, LONG, GAP = "serve-marlin-7b", "serve-long-context-34b", "itl_s.mean"


def _context(what: str, published: float, run: str, metric: str, unit: str) -> ServingClaim:
    """A figure of a long context, within 15 %."""
    band = round(0.85 * published, 3), round(1.15 * published, 3)
    return ServingClaim(LONG, what, published, band, (run,), (), metric, unit=unit)


FORMATS = (
    _over(MARLIN, "token gap over that of 4 bits, 16 sequences", 2.8, (2.24, 3.36), "4 bits", "base", GAP),
    _over(MARLIN, "the same, 1 sequence", 2.9, (2.32, 3.48), "1 sequence, 4 bits", "1 sequence", GAP),
    _over(MARLIN, "the same, 128 sequences", 1.4, (1.0, 2.0), "128 sequences, 4 bits", "128 sequences", GAP),
    _over(
        "serve-smoothquant-34b",
        "time of a token in 4 bits on one GPU over 16 bits on two",
        0.68,
        (0.5, 0.75),
        "base",
        "4 bits on one",
        "itl_s.mean",
    ),
    _over(
        "serve-smoothquant-34b",
        "the same with the host time of vLLM 0.6",
        0.68,
        (0.5, 0.75),
        "less host time",
        "less host time, 4 bits on one",
        "itl_s.mean",
    ),
    _context("KV of 50K tokens", 12.3, "base", "kv_gb", " GB"),
    _context("KV of 4K tokens", 1.0, "4K", "kv_gb", " GB"),
    _context("users beside the weights, 50K", 0.9, "80 GB", "users", ""),
    _context("users beside the weights, 4K", 11, "4K, 80 GB", "users", ""),
    _context("prefill of 50K tokens at the peak", 17.9, "base", "peak_prefill", " s"),
    _context("prefill of 4K tokens at the peak", 0.95, "4K", "peak_prefill", " s"),
    _context("token after 50K at the peak", 40.5, "base", "peak_token", " ms"),
    _context("token after 4K at the peak", 34.9, "4K", "peak_token", " ms"),
)

POLICY_CLAIMS = (
    *STARTS,
    *ADAPTERS,
    *OVERLAPS,
    *SPECULATION,
    *PLACEMENT,
    *FORMATS,
    *ARRIVALS,
    *STATE,
    *STREAMING,
)
