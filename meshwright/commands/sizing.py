"""``meshwright plan`` over numbers of GPUs and clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.commands.plan_flags import JobFlags
    from planner.training.sizing import Sizing

TRILLION = 1e12
"""Default number of tokens to compare sizes."""


def compare_sizes(
    flags: JobFlags,
    tokens: float | None = None,
    days: float | None = None,
    budget: float | None = None,
    epochs: float = 1.0,
) -> None:
    """Plan every size and cluster; a fixed number of GPUs is a range of one.

    Args:
        flags: the job, its clusters and sizes.
        tokens, days, budget: training tokens, and most days and dollars of the run.
        epochs: passes over these tokens.

    Raises:
        InfeasibleError: no plan fits at any size, or none meets the deadline.
    """
    from core.errors import InfeasibleError
    from meshwright.api import training as api
    from meshwright.commands.output import progress, tell, write_page
    from meshwright.questions.training import size_range
    from meshwright.reports.sizing import limit_words
    from meshwright.reports.units import counted

    ends = None if flags.gpus is None else size_range(flags.gpus)
    names = [name.strip() for name in (flags.cluster or "").split(",") if name.strip()]
    with progress("sizes") as advance:
        trained_tokens = TRILLION if tokens is None else tokens
        sizing = api.size(
            flags.scenario or None,
            tokens=trained_tokens,
            epochs=epochs,
            days=days,
            budget=budget,
            clusters=names,
            gpus=ends,
            progress=advance,
            **flags.arguments,
        )
    tell(sizing, flags.json)
    if sizing.fastest is None:
        raise InfeasibleError("no plan fits at any size")
    write_page(sizing, flags.html)
    if sizing.cheapest is None:
        limits = limit_words(sizing)
        raise InfeasibleError(f"no size trains {counted(sizing.tokens)} tokens{limits}{_enough(sizing)}")


def _enough(sizing: Sizing) -> str:
    """Words on what would meet the limits: the number of devices for the deadline, the least of dollars."""
    from meshwright.reports.sizing import time_words, usd_words

    best, deadline = sizing.fastest, sizing.deadline_days
    cheapest = replace(sizing, deadline_days=None, budget_usd=None).cheapest
    if best is None or cheapest is None:
        return ""
    if sizing.budget_usd is not None and cheapest.usd > sizing.budget_usd:
        return f"; the cheapest, {cheapest.gpus:,} GPUs of {cheapest.cluster}, takes {usd_words(cheapest)} $"
    if deadline is None:
        return ""
    if best.days <= deadline:
        within = replace(sizing, budget_usd=None).cheapest or best
        return f"; {within.gpus:,} GPUs of {within.cluster} meet the deadline for {usd_words(within)} $"
    words = f"; {best.gpus:,} GPUs of {best.cluster} take {time_words(best)}"
    devices = sizing.devices_for(deadline)
    return words + (f", about {devices:,} would meet them" if devices else ", and more hardly help")
