"""Published figures of serving policies beyond engines and pools; `benchmarks.serving_papers` has the others.

Bands were set before the runs; that of a row of issue 23 is the issue's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
            ``unbraked``: servers of a row without a power brake, over those that it was provisioned for.
        alone: both run on one engine: the mechanism alone.
        unit: of the figures.
        measure: of all runs (`serving_papers.ServingRuns`), where no gain of runs over others is claimed.
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
    measure: Callable[[Any], float] | None = None


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
        ("base",),
        ("asleep",),
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

POLICY_CLAIMS = (*STARTS, *ADAPTERS)
