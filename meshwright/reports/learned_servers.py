"""What measured servers taught, and what was measured: factors, errors before and after, levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from rich.console import RenderableType

from meshwright.reports.tables import table
from meshwright.reports.units import percent, seconds, signed_percent
from simulator.site import BY_TOKENS, STEP_TOKENS, Site
from simulator.uncertainty.learning import IDENTIFIED
from simulator.uncertainty.servers import FRONT, LEARNED, LearnedServer, MeasuredLoad

WORDS = {
    "products": "products, norms, all-reduces",
    "experts": "routed experts",
    "attention": "attention of decodes",
    "prefill": "what prompts add",
    "host": "gaps of a step",
    "launches": "launches of a step without a graph",
    "sequence": "host work of a sequence",
    **{name: f"steps of {tokens} tokens" for name, tokens in zip(BY_TOKENS, STEP_TOKENS, strict=True)},
    FRONT: "front end",
}


class LearnedLoads(Protocol):
    """What was learned from which loads; the fields of ``meshwright.ServerLearning``."""

    @property
    def site(self) -> Site:
        """The factors."""
        ...

    @property
    def learned(self) -> LearnedServer:
        """Errors and spreads."""
        ...

    @property
    def loads(self) -> Sequence[MeasuredLoad]:
        """The loads."""
        ...

    @property
    def skipped(self) -> Sequence[tuple[str, str]]:
        """Rows not read, and reasons."""
        ...

    @property
    def contradictions(self) -> Sequence[str]:
        """Loads that contradict each other."""
        ...


def _factors(loads: LearnedLoads) -> list[dict[str, Any]]:
    """Each factor with its spreads."""
    learned = loads.learned
    rows = []
    for name, prior, posterior in zip(LEARNED, learned.prior, learned.posterior, strict=True):
        key = "front_s" if name == FRONT else "factor"
        value = learned.site.front_s if name == FRONT else learned.site.factor(name)
        rows.append(
            {
                "part": name,
                key: value,
                "prior_spread": float(prior),
                "posterior_spread": float(posterior),
                "identified": bool(posterior < IDENTIFIED * prior),
            }
        )
    return rows


def describe_servers(loads: LearnedLoads) -> dict[str, Any]:
    """What was learned, with documented keys."""
    learned = loads.learned
    return {
        "site": loads.site.model_dump(mode="json", exclude={"parts", "covariance"}, exclude_none=True),
        "learned_factors": _factors(loads),
        "learned_loads": [
            {
                "load": loads.loads[index].name,
                "latency": kind,
                "measured_s": loads.loads[index].measured[kind],
                "error_before": float(learned.before[row]),
                "error_after": float(learned.after[row]),
                "error_left_out": float(learned.left_out[row]),
            }
            for row, (index, kind) in enumerate(zip(learned.loads, learned.kinds, strict=True))
        ],
        "contradictions": list(loads.contradictions),
        "skipped": [{"case_id": case_id, "reason": reason} for case_id, reason in loads.skipped],
    }


def server_tables(learned_loads: LearnedLoads) -> list[RenderableType]:
    """What was learned, for people."""
    learned = learned_loads.learned
    rows = []
    for row in _factors(learned_loads):
        front = row["part"] == FRONT
        show = seconds if front else (lambda spread: percent(spread, 0))
        value = f"{1e3 * row['front_s']:+.1f} ms of TTFT" if front else f"{row['factor']:.3f}"
        answer = "yes" if row["identified"] else "stays near its prior"
        spreads = (f"± {show(row[key])}" for key in ("prior_spread", "posterior_spread"))
        rows.append([WORDS[row["part"]], value, *spreads, answer])
    title = (
        f"Learned from {len(learned_loads.loads)} loads on {learned.site.engine} and {learned.site.device}"
    )
    headings = ("part", "measured / priced", "before", "after", "identified")
    parts: list[RenderableType] = [table(headings, rows, title, left=1)]
    errors = (learned.before, learned.after, learned.left_out)
    loads: list[Sequence[str]] = [
        [
            learned_loads.loads[index].name,
            kind.replace("_", " "),
            seconds(learned_loads.loads[index].measured[kind]),
            *(signed_percent(float(error[row])) for error in errors),
        ]
        for row, (index, kind) in enumerate(zip(learned.loads, learned.kinds, strict=True))
    ]
    for name in ("ttft", "tpot"):
        of_kind = np.array([kind.startswith(name) for kind in learned.kinds])
        if of_kind.any():
            sizes = (percent(float(np.abs(error[of_kind]).mean())) for error in errors)
            loads.append(["mean size", name, "", *sizes])
    headings = ("load", "latency", "measured", "before", "after", "load left out")
    parts.append(table(headings, loads, "Predicted over measured latency, less 1", left=2))
    parts += [f"contradiction: {words}" for words in learned_loads.contradictions]
    parts += [f"skipped {name}: {reason}" for name, reason in learned_loads.skipped]
    return parts


def observed_tables(results: Sequence[Mapping[str, Any]], cut: bool) -> list[RenderableType]:
    """Levels of a live server, for people."""
    rows = [
        [
            str(result["max_concurrency"]),
            str(result["completed"]),
            f"{result['total_input_tokens'] / result['completed']:,.0f}",
            f"{result['total_output_tokens'] / result['completed']:,.0f}",
            seconds(1e-3 * result["median_ttft_ms"]),
            seconds(1e-3 * result["mean_tpot_ms"]),
            f"{result['output_throughput']:,.0f}",
        ]
        for result in results
    ]
    headings = ("clients", "requests", "prompt", "output", "TTFT p50", "TPOT", "tokens/s")
    parts: list[RenderableType] = [table(headings, rows, f"Measured: {results[0]['model_id']}", left=0)]
    return [*parts, "cut short: requests or seconds ran out"] if cut else parts
