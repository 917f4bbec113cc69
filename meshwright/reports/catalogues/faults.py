"""Faults: published systems (presets) and the processes that a scenario may state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from core.durations import written
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts, table
from simulator.faults import PROCESSES, Exposed, FaultPreset, presets, read_faults
from simulator.faults.components import Components

SHOWN = (1024, 16384, 131072)
"""Devices, eight a node, for which the time between faults is shown."""


def _mtbf(preset: FaultPreset) -> dict[str, float]:
    """Seconds between faults of jobs of some sizes; a trace's for its own nodes at most."""
    faults, mtbf = read_faults(preset.name, "show", Path()), {}
    shortest = min(
        (getattr(process, "nodes", 2**20) for process in faults.processes if not process.repeats),
        default=2**20,
    )
    for devices in SHOWN:
        job = Exposed(min(devices // 8, shortest), 8)
        mtbf[str(job.devices)] = 1 / faults.rate(job)
    return mtbf


def _brief(preset: FaultPreset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "evidence": preset.evidence,
        "second_hand": preset.second_hand,
        "mtbf_s": _mtbf(preset),
        "source": preset.source,
    }


def _more(preset: FaultPreset) -> dict[str, Any]:
    return {
        "notes": preset.notes,
        "processes": [process.model_dump(mode="json", exclude_none=True) for process in preset.processes],
    }


def _about(preset: FaultPreset) -> dict[str, str]:
    return {
        "title": preset.title,
        "source": preset.source,
        "evidence": preset.evidence + (", second hand" if preset.second_hand else ""),
        "notes": preset.notes,
        "time between faults": ", ".join(
            f"{devices} devices {written(s)}" for devices, s in _mtbf(preset).items()
        ),
    }


def _parts(preset: FaultPreset) -> list[Table]:
    tables = []
    for process in preset.processes:
        if isinstance(process, Components):
            rows = [
                [each.name, each.component, each.notice, each.source, f"{each.count:g}", str(each.nodes)]
                for each in process.causes
            ]
            columns = ["cause", "component", "shows as", "source", "faults", "nodes lost"]
            seen = process.exposure
            words = f"Causes, counted on {seen.devices:,} devices in {written(seen.duration)}"
            tables.append(table(columns, rows, words, left=4))
            if process.size:
                size = process.size
                size_text = (
                    f"{written(size.mtbf)} at {size.devices:,} devices, none to {size.reference_devices:,}"
                )
                tables.append(facts({"size term": size_text, "source": size.source}))
        else:
            stated = process.model_dump(mode="json", exclude_none=True)
            texts = {name: str(value) for name, value in stated.items()}
            tables.append(facts({"process": PROCESSES[texts["kind"]].HELP, **texts}))
    return tables


KIND = Kind(
    names=presets.names,
    get=presets.get,
    brief=_brief,
    more=_more,
    cells={
        "preset": lambda preset: preset.name,
        "system": lambda preset: preset.title,
        "evidence": lambda preset: "second hand" if preset.second_hand else preset.evidence,
        "faults every, 1,024 / 16,384 / 131,072 devices": lambda preset: ", ".join(
            written(seconds) for seconds in _mtbf(preset).values()
        ),
    },
    about=_about,
    parts=_parts,
    text_columns=4,
)
