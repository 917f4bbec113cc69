"""Which candidates fit the memory of every group, and the unequal shares of state that make some fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor

import numpy as np

from core.loading import build
from hwmodels.mixed import NodeGroup
from planner.mixed.candidates import MixedCandidate
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.models import Model
from simulator.placement import MixedSetting
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.state.uneven import EVEN, StateShare
from simulator.training.memory import memory

NO_STATE = StateShare(device=0.0)
ROOM = 0.99
"""Part of a device's memory that unequal shares of the state fill at most."""


def fitting(mixed: MixedSetting, candidates: Sequence[MixedCandidate]) -> list[MixedCandidate]:
    """Candidates that fit the groups' devices; where only unequal shares of sharded state do, with these."""
    capacity = {group.name: group.cluster.device.memory_bytes for group in mixed.cluster.groups}
    even = _peaks(mixed, candidates)
    fits = np.all([even[name] <= capacity[name] for name in capacity], axis=0)
    short = [
        number for number in np.flatnonzero(~fits).tolist() if "micro_batch" in candidates[number].placement
    ]
    bare = _peaks(mixed, [candidates[number] for number in short], NO_STATE)
    weights: dict[int, dict[str, float]] = {}
    for row, number in enumerate(short):
        replicas = candidates[number].placement["replicas"]
        room = {
            name: (ROOM * capacity[name] - bare[name][row]) / (even[name][number] - bare[name][row])
            for name in replicas
        }
        weights[number] = _weights(replicas, room)
    return [
        replace(each, placement={**each.placement, "state": weights[number]}) if weights.get(number) else each
        for number, each in enumerate(candidates)
        if fits[number] or weights.get(number)
    ]


def _weights(replicas: Mapping[str, int], room: Mapping[str, float]) -> dict[str, float]:
    """Shares of sharded state over an equal one, as equal as the largest allow; none if too small.

    Args:
        replicas: of each group.
        room: largest share of each group.
    """
    shares: dict[str, float] = {}
    while len(shares) < len(replicas):
        free = [name for name in replicas if name not in shares]
        left = sum(replicas.values()) - sum(replicas[name] * share for name, share in shares.items())
        level = left / sum(replicas[name] for name in free)
        full = [name for name in free if room[name] < level]
        if len(full) == len(free) or min((room[name] for name in full), default=level) < 0.01:
            return {}
        rounded = {name: floor(100 * room[name]) / 100 for name in full}
        shares |= rounded or dict.fromkeys(free, round(level, 4))
    return shares


def _peaks(
    mixed: MixedSetting, candidates: Sequence[MixedCandidate], state: StateShare = EVEN
) -> dict[str, np.ndarray]:
    """Peak bytes of a device of each group, shape (candidates,); 0 where a candidate leaves it idle."""
    peaks = {group.name: np.zeros(len(candidates)) for group in mixed.cluster.groups}
    for group in mixed.cluster.groups:
        parts: dict[int, list[tuple[int, range]]] = {}
        for number, each in enumerate(candidates):
            if part := _part_of(each, group.name, mixed.layers):
                parts.setdefault(part[0], []).append((number, part[1]))
        for layers, placed in parts.items():
            plans = Plans.of([_plan_on(mixed, candidates[number], group.name) for number, _ in placed])
            numbers = [number for number, _ in placed]
            peaks[group.name][numbers] = _peaks_on(
                mixed, group, layers, plans, [placed_plan for _, placed_plan in placed], state
            )
    return peaks


def _plan_on(mixed: MixedSetting, candidate: MixedCandidate, group: str) -> Plan:
    size = candidate.placement.get("micro_batch", {}).get(group, candidate.plan["micro_batch"])
    return Plan.model_validate({**mixed.framework.defaults, **candidate.plan, "micro_batch": size})


def _part_of(candidate: MixedCandidate, group: str, layers: int) -> tuple[int, range] | None:
    """Layers of a pipeline whose stages are all like the group's, and its own stages; None without any."""
    stages, placement = candidate.plan["pipeline"], candidate.placement
    if "replicas" in placement:
        return (layers, range(stages)) if group in placement["replicas"] else None
    start = 0
    for name, count in placement["stages"].items():
        if name == group:
            total = placement["layers"][group] * stages if "layers" in placement else layers
            return total, range(start, start + count)
        start += count
    return None


def _peaks_on(
    mixed: MixedSetting,
    group: NodeGroup,
    layers: int,
    plans: Plans,
    parts: Sequence[range],
    state: StateShare,
) -> np.ndarray:
    """Peak bytes on the group's first and last stage, the larger, shape (plans,)."""
    model = mixed.model
    if layers != model.layers:
        model = build(Model, {**model.model_dump(), "layers": layers}, model.name)
    cluster = group.uniform(int(plans.devices.max()))
    setting = Setting(model, cluster, mixed.training, mixed.framework, allow=mixed.allow, state_share=state)
    stages = Stages.of(setting, plans)
    counts, every = parameters(setting, plans, stages), np.arange(len(plans))
    peaks = np.zeros(len(plans))
    for ends in ([part[0] for part in parts], [part[-1] for part in parts]):
        at = np.array(ends)
        rows = (np.cumsum(stages.lengths, axis=0) <= at).sum(axis=0)
        rows = rows if stages.runs is None else stages.runs[rows, every]
        # The memory of a class is that of its stage with most micro batches in flight: here the group's own.
        index = stages.index.copy()
        index[rows, every] = at
        peaks = np.maximum(
            peaks, memory(setting, plans, replace(stages, index=index), counts).stages[rows, every]
        )
    return peaks
