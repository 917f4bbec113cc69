"""The closed form of a step whose stages or replicas lie on groups of different nodes.

Each stage takes the time of its own group's devices; the schedule's closed form reads them all. Communication
between groups is as slow as its slowest member, on its own links or on the joining network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np

from simulator.layout.parameters import Parameters, parameters
from simulator.layout.stages import Stages
from simulator.placement import MixedSetting, Share
from simulator.plan import Plan, Plans
from simulator.schedules import PipelineTimes, get_schedule
from simulator.setting import Setting
from simulator.training.analytic import (
    StageTimes,
    data_parallel_times,
    micro_batches,
    priced_time,
    stage_times,
    work_once,
)
from simulator.training.boundary import hop_transfer, tied_embedding
from simulator.training.components import Component, components
from simulator.training.memory import memory
from simulator.training.mixed.step import GroupStep, MixedStep, placed


def predict_mixed(setting: MixedSetting, plan: Plan, where: str = "") -> MixedStep:
    """Predict a step in closed form.

    Raises:
        InputError: a placement that does not fit plan or cluster, or a schedule without a closed form.
    """
    parts, plan = placed(setting, plan, where)
    groups = [_Group.of(setting, share, share.plan(plan), apart=len(parts) > 1) for share in parts]
    if setting.placement.stages:
        seconds = _by_stage(groups, plan)
    else:
        links = [group.setting for group in groups] + [group.joined for group in groups]
        # Collectives over all replicas are as slow as the slowest links or group.
        seconds = max(group.seconds(link) for group in groups for link in links)
    return MixedStep(seconds, tuple(group.step for group in groups))


@dataclass(frozen=True)
class _Group:
    """The stages of one group: every array is that of a whole pipeline of the group's devices."""

    share: Share
    setting: Setting
    joined: Setting
    """The same setting with nodes that communicate over the joining network."""
    plans: Plans
    stages: Stages
    counts: Parameters
    pieces: list[Component]
    times: StageTimes

    @classmethod
    def of(cls, mixed: MixedSetting, share: Share, plan: Plan, apart: bool) -> _Group:
        """Price a pipeline whose devices are all of the group's kind."""
        setting, plans = mixed.on(share, plan), Plans.of(plan)
        joined = mixed.on(share, plan, joined=True) if apart else setting
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        pieces = components(plans, stages, counts.ops)
        times = stage_times(setting, plans, stages, counts, pieces)
        return cls(share, setting, joined, plans, stages, counts, pieces, times)

    @cached_property
    def classes(self) -> np.ndarray:
        """The class of each stage of the pipeline, shape (stages,)."""
        rows = np.arange(len(self.stages.index)) if self.stages.runs is None else self.stages.runs[:, 0]
        # Runs count the last class from the end.
        return np.repeat(rows, self.stages.lengths[:, 0]) % len(self.stages.index)

    @cached_property
    def own_classes(self) -> list[int]:
        """The classes of the group's own stages."""
        return [int(self.classes[stage]) for stage in self.share.stages]

    def seconds(self, links: Setting) -> float:
        """Seconds of a step of such pipelines, with collectives over the links of a setting."""
        return float(priced_time(self.setting, self.plans, self.stages, self.counts, self.pieces, links)[0])

    @property
    def in_group(self) -> np.ndarray:
        """Whether the group has stages of a class, shape (classes, 1)."""
        return np.isin(np.arange(len(self.stages.index)), self.own_classes)[:, np.newaxis]

    @property
    def longest(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of its longest backward and forward pass, shape (1,)."""
        return self.times.longest(self.in_group)

    @cached_property
    def kernels_s(self) -> float:
        """Seconds of its kernels once a step."""
        once = work_once(self.setting, self.plans, self.in_group, self.counts)[1]
        return float((once.gradient_kernels + once.optimizer)[0])

    def finish_s(
        self, longest: tuple[np.ndarray, np.ndarray], pipeline: tuple[np.ndarray, np.ndarray]
    ) -> float:
        """Seconds of exchanges and updates once a step.

        ``longest``: seconds of the longest backward and forward pass of any group; ``pipeline``: of all
        passes, which they run beside, and of a transfer.
        """
        _, gradients, gathers = data_parallel_times(
            self.setting, self.plans, self.in_group, self.counts, longest, pipeline
        )
        return float((gradients + gathers)[0]) + self.kernels_s

    @property
    def step(self) -> GroupStep:
        """The group's compute and memory."""
        m, times = micro_batches(self.setting, self.plans), self.times
        passes = m * (times.forward + times.backward - times.sharding_exposed)
        # The first stage of a class holds most micro batches: here the first that is the group's own.
        index = self.stages.index.copy()
        for stage in reversed(self.share.stages):
            index[self.classes[stage], 0] = stage
        stages = replace(self.stages, index=index)
        usage = memory(self.setting, self.plans, stages, self.counts).stages[self.own_classes, 0]
        compute = float(passes[self.own_classes, 0].mean()) + self.kernels_s
        return GroupStep(self.share, compute, float(usage.max()))


def _by_stage(groups: Sequence[_Group], plan: Plan) -> float:
    """Step time where each group carries some of the stages."""
    at = {stage: group for group in groups for stage in group.share.stages}
    ranks = [at[stage] for stage in range(plan.pipeline)]
    m = micro_batches(ranks[0].setting, ranks[0].plans)
    runs = _runs([(groups.index(group), int(group.classes[stage])) for stage, group in enumerate(ranks)])

    def times(of: str) -> np.ndarray:
        return np.stack([getattr(groups[number].times, of)[row] for (number, row), _ in runs])

    def ends(of: str) -> np.ndarray:
        return np.stack([getattr(ranks[end].times, of)[end] for end in (0, -1)])

    transfer = np.array([_transfer(ranks, plan)])
    pipeline = PipelineTimes(
        stages=np.array([plan.pipeline]),
        micro_batches=m,
        chunks=np.array([plan.virtual_pipeline]),
        lengths=np.array([[length] for _, length in runs]),
        forward=times("forward"),
        backward=times("backward"),
        forward_ends=ends("forward_ends"),
        backward_ends=ends("backward_ends"),
        transfer=transfer,
        overlap_transfer=np.array([plan.overlap_pipeline]),
    )
    makespan = get_schedule(plan.schedule).makespan(pipeline)
    tied = [tied_embedding(_between(ranks[0], ranks[-1], end), end.plans) for end in (ranks[0], ranks[-1])]
    backward, forward = zip(*(group.longest for group in groups), strict=True)
    longest = np.maximum.reduce(backward), np.maximum.reduce(forward)
    finish = max(group.finish_s(longest, (makespan, transfer)) for group in groups)
    return float(makespan[0]) + finish + max(float(cost.seconds[0]) for cost in tied)


def _runs(ranks: Sequence[tuple[int, int]]) -> list[tuple[tuple[int, int], int]]:
    """Equal neighbours with their number; the first and the last rank are runs of their own."""
    if len(ranks) < 2:
        return [(rank, 1) for rank in ranks]
    between = [(rank, len(list(same))) for rank, same in groupby(ranks[1:-1])]
    return [(ranks[0], 1), *between, (ranks[-1], 1)]


def _between(first: _Group, second: _Group, end: _Group) -> Setting:
    """The setting whose links join two stages, as one of them sees it."""
    return end.setting if first is second else end.joined


def _transfer(ranks: Sequence[_Group], plan: Plan) -> float:
    """Seconds of one boundary tensor: the mean of all hops, or of the slowest two neighbours that block."""
    hops = []
    for stage, (first, second) in enumerate(pairwise(ranks)):
        costs = []
        for end in (first, second):
            cluster = _between(first, second, end).cluster
            level = int(cluster.level_between(end.plans.pipeline_stride[0], stage, stage + 1))
            far = len(cluster.levels) if first is not second else level
            costs.append(hop_transfer(_between(first, second, end), end.plans, far).seconds[0])
        hops.append(float(max(costs)))
    if plan.overlap_pipeline or len(hops) < 2:
        return float(np.mean(hops)) if hops else 0.0
    return max((first + second) / 2 for first, second in pairwise(hops))
