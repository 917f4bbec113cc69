"""What measured steps taught: factors, errors before and after, runs that contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from rich.console import RenderableType

from meshwright.reports.tables import table
from meshwright.reports.units import percent, seconds, signed_percent
from simulator.site import FACTORS, Site
from simulator.uncertainty import PARTS
from simulator.uncertainty.learning import Learned, MeasuredStep


class LearnedRuns(Protocol):
    """What was learned from which runs; the fields of ``meshwright.Learning``."""

    @property
    def site(self) -> Site:
        """The factors."""
        ...

    @property
    def learned(self) -> Learned:
        """Errors and spreads."""
        ...

    @property
    def steps(self) -> Sequence[MeasuredStep]:
        """The runs."""
        ...

    @property
    def skipped(self) -> Sequence[tuple[str, str]]:
        """Rows not read, and reasons."""
        ...

    @property
    def contradictions(self) -> Sequence[str]:
        """Runs that contradict each other."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Runs that are predicted not to fit."""
        ...


WORDS = {
    "products": "matrix products",
    "experts": "products of experts",
    "attention": "attention",
    "memory": "memory-bound kernels",
    "host": "host time",
    "node": "collectives inside a node",
    "network": "collectives across nodes",
    "exchange": "exchange with experts",
}


def describe_learning(runs: LearnedRuns) -> dict[str, Any]:
    """What was learned, with documented keys."""
    learned = runs.learned
    return {
        "site": runs.site.model_dump(mode="json", exclude={"parts", "covariance"}, exclude_none=True),
        "learned_factors": [
            {
                "part": name,
                "factor": runs.site.factor(name),
                "prior_spread": float(learned.prior[PARTS.index(name)]),
                "posterior_spread": float(learned.posterior[PARTS.index(name)]),
                "identified": learned.identified[name],
            }
            for name in FACTORS
        ],
        "learned_runs": [
            {
                "case_id": step.name,
                "measured_step_time_s": step.seconds,
                "error_before": float(learned.before[index]),
                "error_after": float(learned.after[index]),
                "error_left_out": float(learned.left_out[index]),
            }
            for index, step in enumerate(runs.steps)
        ],
        "contradictions": list(runs.contradictions),
        "warnings": list(runs.warnings),
        "skipped": [{"case_id": case_id, "reason": reason} for case_id, reason in runs.skipped],
    }


def learned_tables(learned_runs: LearnedRuns) -> list[RenderableType]:
    """What was learned, for people."""
    learned, site = learned_runs.learned, learned_runs.site
    rows = [
        [
            WORDS[name],
            f"{site.factor(name):.3f}",
            f"± {percent(float(learned.prior[PARTS.index(name)]), 0)}",
            f"± {percent(float(learned.posterior[PARTS.index(name)]), 0)}",
            "yes" if learned.identified[name] else "stays near its prior",
        ]
        for name in FACTORS
    ]
    memory = site.memory
    left = "" if memory.spread is None else f"± {percent(memory.spread, 0)}"
    rows.append(["peak memory", f"{memory.factor:.3f}", "", left, "yes" if left else "no measured peak"])
    title = f"Learned from {len(learned_runs.steps)} runs of {site.framework} on {site.device}"
    parts: list[RenderableType] = [
        table(("part", "measured / calibrated", "before", "after", "identified"), rows, title, left=1)
    ]
    runs: list[Sequence[str]] = [
        [
            step.name,
            seconds(step.seconds),
            *(
                signed_percent(float(errors[index]))
                for errors in (learned.before, learned.after, learned.left_out)
            ),
        ]
        for index, step in enumerate(learned_runs.steps)
    ]
    sizes = [np.abs(errors).mean() for errors in (learned.before, learned.after, learned.left_out)]
    runs.append(["mean size", "", *(percent(float(size)) for size in sizes)])
    headings = ("run", "measured", "before", "after", "run left out")
    parts.append(table(headings, runs, "Predicted over measured step, less 1", left=1))
    parts += [f"contradiction: {words}" for words in learned_runs.contradictions]
    parts += [f"warning: {words}" for words in learned_runs.warnings]
    parts += [f"skipped {name}: {reason}" for name, reason in learned_runs.skipped]
    return parts
