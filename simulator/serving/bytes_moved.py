"""What a run moved: tokens read by tier, bytes over links, migrations and their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.serving.fleet.fleet import Fleet
from simulator.serving.metrics import Latency
from simulator.serving.steps.finetuned import SlackSteps


def moves_figures(fleet: Fleet) -> dict[str, Any]:
    """Figures of the policies that move state; empty where none does."""
    figures: dict[str, Any] = {}
    prompts = float(fleet.records.columns()["prompt"].sum()) if fleet.stores else 0.0
    if prompts:
        read: dict[str, int] = {}
        for store in fleet.stores:
            read[store.place] = read.get(store.place, 0) + store.tokens_read
        figures["tier_hit_rates"] = {place: tokens / prompts for place, tokens in read.items()}
    if fleet.moves is not None:
        moves, stops = fleet.moves.counts, fleet.moves.counts.stops_s
        figures["migrations"] = {
            "copied": moves.copied,
            "recomputed": moves.recomputed,
            "dropped": moves.dropped,
            "bytes": moves.bytes,
            "lent_blocks": moves.lent,
            "stop_mean_s": sum(stops) / len(stops) if stops else None,
            "stop_max_s": max(stops, default=None),
        }
    figures |= deadlines(fleet)
    figures |= finetuning(fleet)
    links: dict[str, float] = {}
    for lane in fleet.lanes:
        links[lane.name] = links.get(lane.name, 0.0) + lane.bytes
    if links:
        figures["link_bytes"] = links
    return figures


def finetuning(fleet: Fleet) -> dict[str, Any]:
    """Fine-tuning tokens a second, in slack and while idle, and the share of devices that do nothing else."""
    tuned = [member for member in fleet.members if isinstance(member.meter.model, SlackSteps)]
    span = max((member.meter.totals.last_s for member in fleet.members), default=0.0)
    if not tuned or not span:
        return {}
    rate = share = 0.0
    for member in tuned:
        totals, steps = member.meter.totals, member.pool.costs.steps
        if isinstance(steps, SlackSteps):
            tuned_tokens = totals.tuned + max(span - totals.busy_s, 0.0) / steps.token_s
            rate += tuned_tokens / span
            share += tuned_tokens * steps.token_s / span / len(tuned)
    return {"finetuning": {"tokens_s": float(rate), "share_of_peak": float(share)}}


def deadlines(fleet: Fleet) -> dict[str, Any]:
    """Programs within their deadline, and their seconds; empty without a deadline.

    A single request is a program of its own. Programs that the run's last request cut short do not count.
    """
    program = fleet.setting.serving.program
    if program.deadline is None:
        return {}
    if fleet.source.feeds_back:
        seconds = np.array(fleet.program_seconds)
    else:
        columns = fleet.records.columns()
        lost = np.full(fleet.refused + fleet.failed, np.inf)
        seconds = np.concatenate([columns["last_s"] - columns["arrival_s"], lost])
    skipped = int(fleet.setting.serving.skipped * len(seconds))
    ended = seconds[skipped:]
    if not len(ended):
        return {"deadlines_met": None, "program_s": None}
    ended_s = ended[np.isfinite(ended)]
    return {
        "deadlines_met": float((ended <= program.deadline).mean()),
        "program_s": vars(Latency.of(ended_s)) if len(ended_s) else None,
    }
