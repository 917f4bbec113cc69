"""Offload systems: the plan fields that each stands for."""

from __future__ import annotations

from typing import Any

from meshwright.reports.catalogues.kind import Kind
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


def _zero(system: OffloadSystem) -> str:
    return "" if system.zero is None else str(system.zero)


WORDS = {"ZeRO": _zero, "place": _places, "update": _updates}


def _about(system: OffloadSystem) -> dict[str, str]:
    words = {name: cell(system) for name, cell in WORDS.items()}
    return {"what": system.title, **words, "not expressed": system.missing, "source": system.source}


KIND = Kind(
    names=offload_systems.names,
    get=offload_systems.get,
    brief=_brief,
    cells={"system": lambda system: system.name, **WORDS, "what": lambda system: system.title},
    about=_about,
    text_columns=5,
)
