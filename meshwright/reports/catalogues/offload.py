"""Offload systems: the plan fields that each stands for."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts
from simulator.offload import OffloadSystem, offload_systems
from simulator.state.place import STATE_CLASSES


def _brief(system: OffloadSystem) -> dict[str, Any]:
    return system.model_dump(mode="json", exclude_defaults=True)


def _places(system: OffloadSystem) -> str:
    words = []
    for kind in STATE_CLASSES:
        shares = system.place.of(kind).model_dump(exclude_defaults=True)
        listed = [f"{tier} {shares[tier]}" for tier in ("host", "nvme", "file_system") if shares.get(tier)]
        if listed:
            words.append(f"{kind}: {', '.join(listed)}")
    return "; ".join(words)


def _updates(system: OffloadSystem) -> str:
    fields = system.update.model_dump(exclude_defaults=True)
    return ", ".join(f"{name} {str(value).lower()}" for name, value in fields.items()) or "on device"


def _row(system: OffloadSystem) -> list[str]:
    zero = "" if system.zero is None else str(system.zero)
    return [system.name, zero, _places(system), _updates(system), system.title]


def _tables(system: OffloadSystem) -> list[Table]:
    rows = {
        "what": system.title,
        "ZeRO": "" if system.zero is None else str(system.zero),
        "place": _places(system),
        "update": _updates(system),
        "not expressed": system.missing,
        "source": system.source,
    }
    return [facts({name: value for name, value in rows.items() if value}, system.name)]


KIND = Kind(
    names=offload_systems.names,
    get=offload_systems.get,
    brief=_brief,
    columns=("system", "ZeRO", "place", "update", "what"),
    row=_row,
    tables=_tables,
    text_columns=5,
)
