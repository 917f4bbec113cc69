"""The numbers of one plan's run: what closed forms and the event simulation both read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.faults import Exposed, Faults
from simulator.runs.recovery import Recovery


@dataclass(frozen=True)
class SavedAt:
    """A place of saves.

    Attributes:
        place: host, peers, ssd or remote.
        every: saves from one that goes there to the next.
        safe_s: from the start of a save until it is safe there.
        lost_nodes: nodes whose loss it survives.
        load_s: reading it back.
    """

    place: str
    every: int
    safe_s: float
    lost_nodes: float
    load_s: float


@dataclass(frozen=True)
class Slow:
    """A part of a run in which steps take ``factor`` times as long; ``evicted`` ends it by a recovery."""

    start: float
    end: float
    factor: float
    evicted: bool = False
    straggler: int = -1
    """Number of the straggler in the question; -1: unnamed."""


@dataclass(frozen=True)
class Dropped:
    """Going on without a data-parallel replica.

    Attributes:
        replicas: data-parallel replicas of the plan.
        stall_s: all replicas wait when one drops.
        out_s: until it is back, without waiting for spares.
        rejoin_s: all replicas wait when it comes back.
    """

    replicas: int
    stall_s: float
    out_s: float
    rejoin_s: float


@dataclass(frozen=True)
class RunInputs:
    """One plan's run.

    Attributes:
        job: nodes of the job.
        faults: their processes.
        recovery: its stages.
        steps, step_s: of the run; their product is the work.
        period_s: seconds of work between saves; infinite without checkpoints.
        stall_s: seconds that training waits for a save.
        tiers: places of saves; empty without checkpoints.
        spares: nodes that replace lost ones.
        waits: whether lost nodes are replaced by spares only.
        dropped: where the job goes on without the replica that lost a node.
        shrunk: where the job goes on with fewer nodes: speed over the full job's by nodes missing, from one.
        slow: stragglers, in any order.
    """

    job: Exposed
    faults: Faults
    recovery: Recovery
    steps: int
    step_s: float
    period_s: float = math.inf
    stall_s: float = 0.0
    tiers: tuple[SavedAt, ...] = ()
    spares: int = 0
    waits: bool = False
    dropped: Dropped | None = None
    shrunk: tuple[float, ...] = ()
    slow: tuple[Slow, ...] = ()

    @property
    def work_s(self) -> float:
        """Seconds of the run without any loss."""
        return self.steps * self.step_s

    @property
    def devices(self) -> int:
        """Devices of the job."""
        return self.job.devices

    def tier(self, nodes: float) -> SavedAt | None:
        """The nearest place that survives the loss of ``nodes`` nodes."""
        safe = [tier for tier in self.tiers if tier.lost_nodes >= nodes]
        return min(
            safe, key=lambda tier: (tier.every * self.period_s + tier.safe_s, tier.load_s), default=None
        )

    def means(self) -> dict[str, float]:
        """Mean seconds of each stage of a recovery over the kinds of faults; without waiting for spares."""
        kinds = self.faults.kinds(self.job)
        total = sum(kind.rate for kind in kinds)
        seconds_of: dict[str, float] = {}
        for rate, notice, nodes in kinds:
            tier = self.tier(nodes)
            stages = self.recovery.means(notice, nodes, self.devices, tier.load_s if tier else 0.0)
            for name, seconds in stages.items():
                seconds_of[name] = seconds_of.get(name, 0.0) + rate / total * seconds
        return seconds_of
