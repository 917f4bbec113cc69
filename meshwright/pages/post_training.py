"""A step of post-training as an HTML page: roles as lanes over the step, idle shares, phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from rich.table import Table

from meshwright.pages.page import Page, Section, axis, label, layout
from meshwright.pages.sections import sections_of
from meshwright.reports.post_training import DEVICES, WORDS, answers_per_hour, places, rl_facts
from meshwright.reports.units import percent, seconds
from simulator.rl.step import RlStep, step_lanes

COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "generation": "#4a90d9",
        "scoring": "#9ad3a6",
        "update": "#2aa198",
        "weights": "#f0a202",
        "state": "#b56576",
        "host": "#b39ddb",
        "idle": "#e2e8f0",
    }
)


def rl_page(step: RlStep) -> Page:
    """The page of one step."""
    return Page(_title(step), rl_facts(step), _sections(step))


def rl_plans_page(steps: Sequence[RlStep], tables: Sequence[Table | str]) -> Page:
    """The page of a ranking: its tables, a bar a plan, and the first plan's roles over a step."""
    first = steps[0]
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [answers_per_hour(step) for step in steps],
        "y": [_name(rank, step) for rank, step in enumerate(steps, start=1)],
        "marker": {"color": COLOURS["generation"]},
        "hovertemplate": "%{y}: %{x:,.0f} answers an hour<extra></extra>",
    }
    shape = layout(
        height=120 + 50 * len(steps), xaxis=axis("answers an hour"), yaxis=axis(autorange="reversed")
    )
    basis, ranking = sections_of(tables)
    sections = [
        replace(basis, heading="In short"),
        replace(ranking, heading="Plans"),
        Section("Answers an hour", "More is better.", {"data": [bars], "layout": shape}),
        *_sections(first, "Of the first plan. "),
    ]
    return Page(f"Plans of {_title(first)}", rl_facts(first), sections)


def _name(rank: int, step: RlStep) -> str:
    rollouts = step.setting.rollouts.pools[0].pool
    return label(f"{rank}: {places(step)}, {step.setting.plan.describe()}, rollouts TP{rollouts.tensor}")


def _title(step: RlStep) -> str:
    return step.setting.title or f"post-training of {step.setting.model.name}"


def _sections(step: RlStep, before: str = "") -> list[Section]:
    """The roles of a step over time, their idle shares and phases."""
    return [
        Section(
            "Roles over a step",
            f"{before}A step in the steady state. Grey: devices of the role wait for the other one.",
            _chart(step),
        ),
        Section(
            "Waiting",
            "Share of the step in which devices of a role have no work.",
            columns=("devices", "idle"),
            rows=[[DEVICES[role], percent(share)] for role, share in step.timing.idle.items()],
        ),
        Section(
            "Phases",
            "Seconds of each phase; phases of different roles may overlap.",
            columns=("phase", "time"),
            rows=[
                [words, seconds(getattr(step.phases, name))]
                for name, words in WORDS.items()
                if getattr(step.phases, name)
            ],
        ),
    ]


def _chart(step: RlStep) -> dict[str, Any]:
    """Horizontal bars, one row a lane."""
    segments = step_lanes(step)
    traces = []
    for phase, colour in COLOURS.items():
        of_phase = [segment for segment in segments if segment.phase == phase]
        if not of_phase:
            continue
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": WORDS.get(phase, phase),
                "y": [segment.lane for segment in of_phase],
                "x": [segment.end - segment.start for segment in of_phase],
                "base": [segment.start for segment in of_phase],
                "marker": {"color": colour},
                "hovertemplate": "%{y}: %{x:.1f} s<extra>" + WORDS.get(phase, phase) + "</extra>",
            }
        )
    rows = len({segment.lane for segment in segments})
    shape = layout(barmode="overlay", height=120 + 70 * rows, xaxis=axis("seconds"), yaxis=axis())
    return {"data": traces, "layout": shape}
