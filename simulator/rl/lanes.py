"""A step in the steady state as lanes of the roles, for pages and traces."""

from __future__ import annotations

from typing import NamedTuple

from simulator.rl.schedules import Phases, RlTiming, Split

ALL, TRAIN, GENERATE = "all devices", "trainer", "rollout engine"


class LaneSegment(NamedTuple):
    """What the devices of a lane do from one second to another; ``idle`` where they wait."""

    lane: str
    phase: str
    start: float
    end: float


def lanes(phases: Phases, timing: RlTiming, split: Split | None, beside: bool) -> list[LaneSegment]:
    """Segments of a step, in the order of time.

    Args:
        phases: seconds of each phase.
        timing: of the step under its schedule.
        split: devices by role; None where both roles share all.
        beside: rollouts run beside updates; otherwise the roles work in turn.
    """
    training = [(name, getattr(phases, name)) for name in ("host", "scoring", "update")]
    if split is None:
        others = sum(time for _, time in training) + phases.weights + phases.state
        rollouts = max(timing.seconds - others, 0.0)
        parts = [("generation", rollouts), ("state", phases.state), *training, ("weights", phases.weights)]
        return _lane(ALL, parts, timing.seconds)
    work = timing.seconds - phases.weights
    if beside:
        busy = min(phases.busy_generation + phases.resume, work)
        generate = [("generation", busy), ("idle", work - busy)]
        used = sum(time for _, time in training)
        train = [*training, ("idle", max(work - used, 0.0))]
    else:
        used = sum(time for _, time in training)
        generate = [("generation", work - used), ("idle", used)]
        train = [("idle", work - used), *training]
    move = ("weights", phases.weights)
    return [
        *_lane(TRAIN, [*train, move], timing.seconds),
        *_lane(GENERATE, [*generate, move], timing.seconds),
    ]


def _lane(name: str, parts: list[tuple[str, float]], seconds: float) -> list[LaneSegment]:
    """Parts one after the other, up to the step's end."""
    segments, now = [], 0.0
    for phase, time in parts:
        end = min(now + time, seconds)
        if end > now:
            segments.append(LaneSegment(name, phase, now, end))
        now = end
    return segments
