"""The closed loop: measured training steps beside their prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, table
from meshwright.reports.units import percent, seconds, signed_percent
from meshwright.validation.live import Gap, compare
from meshwright.validation.loop import Loop

BUSY = 0.2
"""Spread of measured steps above which the machine was probably busy."""


def as_json(loops: Sequence[Loop]) -> dict[str, Any]:
    """Each model with documented keys."""
    return {"live": [_one(loop) for loop in loops]}


def _one(loop: Loop) -> dict[str, Any]:
    measured, predicted, config = loop.measured, loop.predicted, loop.measured.config
    return {
        "size": loop.size,
        "device": measured.device,
        "devices": config.devices,
        "parallelism": config.parallelism,
        "precision": config.dtype,
        "parameters": config.parameters(),
        "measured_step_time_s": measured.step_seconds,
        "measured_spread": measured.spread,
        "predicted_step_time_s": predicted.seconds,
        "relative_error": predicted.seconds / measured.step_seconds - 1,
        "step_time_uncertainty": predicted.band,
        "operators": [
            {"operator": gap.operator, "measured_s": gap.measured, "predicted_s": gap.predicted}
            | {"share_of_step": gap.share_of_step}
            for gap in compare(measured, predicted)[1:]
        ],
    }


def as_tables(loops: Sequence[Loop]) -> list[Table]:
    """Every model for people: the step, then the operators by the size of their gap."""
    return [part for loop in loops for part in _tables(loop)]


def _tables(loop: Loop) -> list[Table]:
    measured, predicted, config = loop.measured, loop.predicted, loop.measured.config
    step, *operators = compare(measured, predicted)
    layout = f" {config.parallelism}," if config.devices > 1 else ""
    words = {
        "where": f"{config.devices} x {measured.device},{layout} {config.dtype}",
        "measured": f"{seconds(step.measured)}, spread {percent(measured.spread)}",
        "predicted": f"{seconds(step.predicted)} ± {percent(predicted.band, 0)}",
        "error": signed_percent(step.relative),
    }
    if measured.spread > BUSY:
        words["measured"] += ": was the machine busy with something else?"
    title = f"{loop.size}: {config.parameters() / 1e6:.0f}M parameters"
    headings = ("operator", "measured", "predicted", "gap, of step")
    return [facts(words, title), table(headings, [_row(gap) for gap in operators])]


def _row(gap: Gap) -> list[str]:
    return [gap.operator, seconds(gap.measured), seconds(gap.predicted), signed_percent(gap.share_of_step)]
