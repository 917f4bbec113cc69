"""What a run moved: tokens read by tier, bytes over links, migrations and their bytes."""

from __future__ import annotations

from typing import Any

from simulator.serving.fleet.fleet import Fleet


def moved(fleet: Fleet) -> dict[str, Any]:
    """Figures of the policies that move state; empty where none does."""
    found: dict[str, Any] = {}
    prompts = float(fleet.records.columns()["prompt"].sum()) if fleet.stores else 0.0
    if prompts:
        read: dict[str, int] = {}
        for store in fleet.stores:
            read[store.place] = read.get(store.place, 0) + store.tokens_read
        found["tier_hit_rates"] = {place: tokens / prompts for place, tokens in read.items()}
    links: dict[str, float] = {}
    for lane in fleet.lanes:
        links[lane.name] = links.get(lane.name, 0.0) + lane.bytes
    if links:
        found["link_bytes"] = links
    return found
