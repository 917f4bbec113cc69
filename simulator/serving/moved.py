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
    if fleet.moves is not None:
        moves, stops = fleet.moves.moved, fleet.moves.moved.stops_s
        found["migrations"] = {
            "copied": moves.copied,
            "recomputed": moves.recomputed,
            "dropped": moves.dropped,
            "bytes": moves.bytes,
            "stop_mean_s": sum(stops) / len(stops) if stops else None,
            "stop_max_s": max(stops, default=None),
        }
    links: dict[str, float] = {}
    for lane in fleet.lanes:
        links[lane.name] = links.get(lane.name, 0.0) + lane.bytes
    if links:
        found["link_bytes"] = links
    return found
