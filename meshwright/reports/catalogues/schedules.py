"""Pipeline schedules: what each needs and where it comes from."""

from __future__ import annotations

from typing import Any

from meshwright.reports.catalogues.kind import Kind
from simulator.schedules import Schedule, get_schedule, schedules


def _brief(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "needs": schedule.rule,
        "splits_backward": schedule.splits_backward,
        "closed_form": schedule.has_closed_form,
        "source": schedule.source,
    }


def _timed(schedule: Schedule) -> str:
    return "closed form" if schedule.has_closed_form else "event engine only"


KIND = Kind(
    names=lambda: sorted(schedules),
    get=get_schedule,
    brief=_brief,
    cells={
        "schedule": lambda schedule: schedule.name,
        "timed by": _timed,
        "needs": lambda schedule: schedule.rule,
        "source": lambda schedule: schedule.source,
    },
    about=lambda schedule: {
        "needs": schedule.rule,
        "timed by": _timed(schedule),
        "source": schedule.source,
    },
    text_columns=4,
)
