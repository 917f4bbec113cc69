"""A step of post-training as an HTML page: roles as lanes over the step, idle shares, phases."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from meshwright.pages.page import Page, Section, axis, layout
from meshwright.reports.post_training import DEVICES, WORDS, rl_facts
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
    sections = [
        Section(
            "Roles over a step",
            "A step in the steady state. Grey: devices of the role wait for the other one.",
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
    title = step.setting.title or f"Post-training of {step.setting.model.name}"
    return Page(title, rl_facts(step), sections)


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
