"""A training step whose stages or replicas lie on groups of different nodes, on the event engine.

The step of a mixed cluster is put together from step programs of uniform clusters, one a group: what a
rank computes and sends inside its group is that of its own kind of node. Communication between groups is as
slow as its slowest member, on its own links or on the joining network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from core.errors import InputError
from simulator.engine import Timeline
from simulator.placement import MixedSetting, Share
from simulator.plan import Plan
from simulator.training.mixed.step import GroupStep, MixedStep, placed
from simulator.training.step_graph import run
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.length import check_length
from simulator.training.step_graph.step import Attached, Pass, Port, StepProgram, StreamWork
from simulator.training.step_graph.streams import DATA, TIED


def simulate_mixed(setting: MixedSetting, plan: Plan, where: str = "") -> MixedStep:
    """Run a step on the event engine.

    Raises:
        InputError: a placement that does not fit plan or cluster, a schedule that cannot run it, or a run
            that would take too long.
    """
    parts, plan = placed(setting, plan, where)
    programs = [step_program(setting.on(share, plan), share.plan(plan)) for share in parts]
    far = [step_program(setting.on(share, plan, joined=True), share.plan(plan)) for share in parts]
    if setting.placement.stages:
        return _by_stage(parts, programs, far, where)
    return _by_replica(parts, programs, far)


def _by_stage(
    parts: Sequence[Share], programs: Sequence[StepProgram], far: Sequence[StepProgram], where: str
) -> MixedStep:
    base = programs[0]
    at = {stage: index for index, share in enumerate(parts) for stage in share.stages}
    if len(parts) > 1 and len(base.schedule.routes(base.stages, base.chunks)) > 1:
        raise InputError(
            f"schedule {base.schedule.name!r} runs both directions, which needs equal stages",
            where,
        )
    route = base.schedule.routes(base.stages, base.chunks)[0]
    transfers = {
        (sender, receiver): _slowest([far[at[sender]].transfer, far[at[receiver]].transfer])
        if at[sender] != at[receiver]
        else programs[at[sender]].transfers.get((sender, receiver), programs[at[sender]].transfer)
        for sender in range(base.stages)
        for receiver in range(base.stages)
        if sender != receiver
    }
    finish = [programs[at[stage]].finish[stage] for stage in range(base.stages)]
    if at[0] != at[base.stages - 1]:
        for stage in (0, base.stages - 1):
            finish[stage] = _exchanged(finish[stage], [program.finish[stage] for program in far], _is_tied)
    program = replace(
        base,
        work=tuple(programs[at[rank]].work[position] for position, (rank, _) in enumerate(route)),
        transfers=transfers,
        finish=tuple(finish),
        static=tuple(programs[at[stage]].static[stage] for stage in range(base.stages)),
        ports=_ports(parts, programs, at),
    )
    check_length(program)
    timeline = run(program)
    groups = tuple(_group_step(share, timeline) for share in parts)
    return MixedStep(timeline.period, groups, timeline)


def _ports(
    parts: Sequence[Share], programs: Sequence[StepProgram], at: Mapping[int, int]
) -> dict[str, tuple[Port, ...]]:
    """Where each stage enters the links of each level: those of its own group."""

    def port(level: str, stage: int) -> Port:
        index = at[stage]
        level_ports = programs[index].ports.get(level)
        if level_ports is None:
            return Port((level, stage))
        return level_ports[stage]._replace(link=(parts[index].group.name, level_ports[stage].link))

    levels = dict.fromkeys(level for program in programs for level in program.ports)
    return {level: tuple(port(level, stage) for stage in sorted(at)) for level in levels}


def _by_replica(
    parts: Sequence[Share], programs: Sequence[StepProgram], far: Sequence[StepProgram]
) -> MixedStep:
    """Replicas compute at their own pace; collectives over all replicas are as slow as the slowest."""
    together = [*programs, *far] if len(parts) > 1 else programs
    groups, timelines = [], []
    for share, program in zip(parts, programs, strict=True):
        work = list(program.work)
        for position, chunk in enumerate(work):
            chunks = [other.work[position] for other in together]
            work[position] = replace(
                chunk,
                forward_gathers=_attached(other.forward_gathers for other in chunks),
                backward_gathers=_attached(other.backward_gathers for other in chunks),
                reductions=_attached(other.reductions for other in chunks),
            )
        finish = tuple(
            _exchanged(segments, [other.finish[stage] for other in together], _is_data)
            for stage, segments in enumerate(program.finish)
        )
        program = replace(program, work=tuple(work), finish=finish)
        check_length(program)
        timeline = run(program)
        groups.append(_group_step(share, timeline))
        timelines.append(timeline)
    slowest = max(timelines, key=lambda timeline: timeline.period)
    return MixedStep(slowest.period, tuple(groups), slowest)


def _group_step(share: Share, timeline: Timeline) -> GroupStep:
    busy = sum(timeline.busy(rank) for rank in share.stages) / len(share.stages)
    return GroupStep(share, busy, max(timeline.peak_memory(rank) for rank in share.stages))


def _attached(same: Iterable[tuple[Attached, ...]]) -> tuple[Attached, ...]:
    """The collectives of one pass with the slowest of their times."""
    return tuple(
        replace(collectives[0], work=_slowest([collective.work for collective in collectives]))
        for collectives in zip(*same, strict=True)
    )


def _exchanged(first: Pass, others: Iterable[Pass], is_exchanged: Callable[[StreamWork], bool]) -> Pass:
    """Segments of a pass, some of them with the slowest of their times on any group."""
    named: dict[str, list[StreamWork]] = {}
    for segments in (first, *others):
        for segment in segments:
            named.setdefault(segment.name, []).append(segment)
    return tuple(_slowest(named[segment.name]) if is_exchanged(segment) else segment for segment in first)


def _is_data(segment: StreamWork) -> bool:
    return segment.stream is DATA and segment.name != TIED


def _is_tied(segment: StreamWork) -> bool:
    return segment.name == TIED


def _slowest(segments: Sequence[StreamWork]) -> StreamWork:
    return max(segments, key=lambda segment: segment.seconds)
