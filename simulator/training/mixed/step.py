"""The step of a mixed cluster, as the closed form and the event engine return it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine import Timeline
from simulator.placement import MixedSetting, Share, shares
from simulator.plan import Plan


@dataclass(frozen=True)
class GroupStep:
    """One group in a step."""

    share: Share
    compute_s: float
    """Busy seconds of the compute stream in a step (kernels, and communication that they wait for inside a
    layer), mean over the group's devices."""
    peak_memory: float
    """Peak bytes on the fullest device."""

    @property
    def fits(self) -> bool:
        """Whether the peak fits the memory of the fullest device."""
        return self.peak_memory <= self.share.group.cluster.device.memory_bytes


@dataclass(frozen=True)
class MixedStep:
    """One step on a cluster of groups; ``timeline`` is that of the ranks that set the pace, on the engine."""

    seconds: float
    groups: tuple[GroupStep, ...]
    timeline: Timeline | None = None


def placed(setting: MixedSetting, plan: Plan, where: str) -> tuple[list[Share], Plan]:
    """The part of each group, and the plan with the rank order that its placement needs.

    Raises:
        InputError: a placement that does not fit plan or cluster.
    """
    parts = shares(setting, plan, where)
    if setting.placement.replicas:  # the ranks of a replica are neighbours, since they share a group
        plan = plan.model_copy(update={"rank_order": "tensor-context-pipeline-data"})
    return parts, plan
