"""Pipeline schedules: what each needs and where it comes from."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts
from simulator.schedules import Schedule, get_schedule, schedules


def _brief(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "needs": schedule.rule,
        "splits_backward": schedule.splits_backward,
        "closed_form": schedule.has_closed_form,
        "source": schedule.source,
    }


def _row(schedule: Schedule) -> list[str]:
    closed = "closed form" if schedule.has_closed_form else "event engine only"
    return [schedule.name, closed, schedule.rule, schedule.source]


def _tables(schedule: Schedule) -> list[Table]:
    values = {"needs": schedule.rule, "timed by": _row(schedule)[1], "source": schedule.source}
    return [facts(values, schedule.name)]


KIND = Kind(
    names=lambda: sorted(schedules),
    get=get_schedule,
    brief=_brief,
    more=lambda schedule: {},
    columns=("schedule", "timed by", "needs", "source"),
    row=_row,
    tables=_tables,
    text_columns=4,
)
