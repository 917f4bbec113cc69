"""The answer about a run: when it finishes, where its time goes, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwmodels.cluster import Cluster
from simulator.runs.closed_form import effective, first_order
from simulator.runs.events import PRODUCTIVE, STATES, Replication, replicate
from simulator.runs.inputs import RunInputs
from simulator.runs.lanes import replicate_many

BUSY = (PRODUCTIVE, "lost work", "stragglers", "fewer devices")
"""States in which devices compute."""

GIVEN_UP = 3
"""Replications given up, and none done, after which no more are drawn: they take longest and say the same."""


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """Replications of one plan's run.

    Attributes:
        inputs: of every replication.
        replications: in the order of their numbers.
        late_s: from the end of a save's stall until it survives the loss of a node.
        interrupted: whether Ctrl-C ended them early.
    """

    inputs: RunInputs
    replications: list[Replication]
    late_s: float = 0.0
    interrupted: bool = False

    @cached_property
    def wall_s(self) -> np.ndarray:
        """Wall time of every replication; infinite where it was given up."""
        return np.array([each.wall_s if each.done else np.inf for each in self.replications])

    def quantile(self, share: float) -> float:
        """Wall time that a share of the replications do not exceed, s."""
        return float(np.quantile(self.wall_s, share, method="higher"))

    @property
    def mean_s(self) -> float:
        """Mean wall time, s."""
        return float(self.wall_s.mean())

    @property
    def goodput(self) -> float:
        """Share of the wall time of all replications that makes progress."""
        return (
            self.inputs.work_s
            * sum(each.done for each in self.replications)
            / sum(each.wall_s for each in self.replications)
        )

    @property
    def goodput_error(self) -> float:
        """Half-width of the 95 % confidence interval of ``goodput``."""
        shares = self.inputs.work_s / self.wall_s
        return float(1.96 * shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else float("inf")

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Mean seconds in every state; they add up to the mean wall time."""
        return {
            state: float(np.mean([each.seconds[state] for each in self.replications])) for state in STATES
        }

    @property
    def faults(self) -> float:
        """Mean number of faults."""
        return float(np.mean([each.faults for each in self.replications]))

    @cached_property
    def by_cause(self) -> dict[str, float]:
        """Mean number of faults by cause, most first."""
        counts: dict[str, float] = {}
        for each in self.replications:
            for cause, number in each.by_cause.items():
                counts[cause] = counts.get(cause, 0.0) + number / len(self.replications)
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    @property
    def mtbf_s(self) -> float:
        """Mean seconds between faults of the job; infinite without faults."""
        rate = self.inputs.faults.rate(self.inputs.job)
        return 1 / rate if rate else float("inf")

    @cached_property
    def closed_form(self) -> dict[str, float | None]:
        """Goodput by the exact law and to first order, from the mean recovery; None outside a law's range."""
        inputs = self.inputs
        rate = inputs.faults.rate(inputs.job)
        recovery = sum(inputs.means().values()) if rate else 0.0
        late = self.late_s if inputs.tiers else 0.0
        # Without checkpoints the whole work is one period: a fault starts it again.
        period = min(inputs.period_s, inputs.work_s)
        exact = effective(rate, period, inputs.stall_s, recovery, late)
        if not rate or np.isinf(inputs.period_s):
            return {"exact": float(exact)}
        first = float(first_order(rate, inputs.period_s, inputs.stall_s, recovery))
        return {"exact": float(exact), "first order": first if first > 0 else None}

    @property
    def assumptions(self) -> list[str]:
        """Why the closed form need not hold; empty where its assumptions do."""
        inputs, reasons = self.inputs, []
        if not inputs.faults.memoryless:
            reasons.append("faults are not memoryless, or silent")
        if inputs.waits and inputs.faults.processes:
            reasons.append("waiting for spares is not in it")
        if inputs.slow:
            reasons.append("stragglers are not in it")
        if inputs.dropped or inputs.shrunk:
            reasons.append("the job goes on with fewer devices")
        if self.late_s > 0 and inputs.tiers:
            reasons.append("saves are safe after training goes on")
        if len({tier.lost_nodes for tier in inputs.tiers}) > 1:
            reasons.append("saves differ in what they survive")
        if any(not law_fixed for law_fixed in _fixed(inputs)):
            reasons.append("stages of a recovery vary")
        return reasons

    def energy_kwh(self, cluster: Cluster, busy_watts: float) -> float:
        """Energy of the job and its spares: computing at ``busy_watts``, otherwise idle; spares idle."""
        busy = sum(self.seconds[state] for state in BUSY)
        idle = sum(self.seconds.values()) - busy
        per_node = cluster.devices_per_node * cluster.device.idle_watts + cluster.host_watts
        spares = self.inputs.spares * self.mean_s * per_node
        return (busy * busy_watts + idle * cluster.power_watts(0.0) + spares) / 3.6e6

    def usd(self, cluster: Cluster) -> float:
        """Money for the job's devices and its spares, at the list price."""
        devices = cluster.devices + self.inputs.spares * cluster.devices_per_node
        return devices * cluster.device.price_per_hour_usd * self.mean_s / 3600


def _fixed(inputs: RunInputs) -> list[bool]:
    """Whether each kind of fault costs the same mean recovery."""
    if not inputs.faults.processes:
        return [True]
    totals = {
        round(sum(inputs.recovery.means(notice, nodes, inputs.devices, 0.0).values()), 9)
        for _, notice, nodes in inputs.faults.kinds(inputs.job)
    }
    return [len(totals) == 1]


def _replications(inputs: RunInputs, seed: int, count: int) -> Iterator[Replication]:
    """The first ones alone, since a run may have to be given up; the others side by side."""
    alone = min(count, GIVEN_UP)
    yield from (replicate(inputs, seed, number) for number in range(alone))
    yield from replicate_many(inputs, seed, alone, count)


def simulate_run(
    inputs: RunInputs,
    replications: int,
    seed: int,
    late_s: float = 0.0,
    progress: Callable[[float], None] | None = None,
    partial: bool = False,
) -> RunOutcome:
    """Draw replications, until some were given up and none is done.

    Args:
        inputs: the run.
        replications: how many; a run that draws nothing takes one.
        seed: of the generator; replication n of two runs sees the same faults.
        late_s: for the closed form.
        progress: called with the finished share.
        partial: whether Ctrl-C ends after the replications that are done, in place of raising.
    """
    count = replications if any(each.repeats for each in inputs.faults.processes) else 1
    drawn: list[Replication] = []
    try:
        for replication in _replications(inputs, seed, count):
            drawn.append(replication)
            if progress:
                progress(len(drawn) / count)
            if len(drawn) == GIVEN_UP and not any(each.done for each in drawn):
                break
    except KeyboardInterrupt:
        if not (partial and drawn):
            raise
        return RunOutcome(inputs, drawn, late_s, interrupted=True)
    return RunOutcome(inputs, drawn, late_s)
