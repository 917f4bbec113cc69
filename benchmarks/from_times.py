"""The step program of a pipeline whose times are given: no model, no cluster."""

from __future__ import annotations

from simulator.schedules import PipelineTimes, Schedule
from simulator.schedules.base import position_times
from simulator.training.step_graph.step import ChunkWork, LinkDemand, StepProgram, StreamWork
from simulator.training.step_graph.streams import PIPELINE


def from_times(
    schedule: Schedule, times: PipelineTimes, weight_share: float = 0.5, offload_seconds: float = 0.0
) -> StepProgram:
    """The pipeline part of one plan, each pass one run of computation.

    Args:
        schedule: the pipeline schedule.
        times: durations of one plan, scalars in s.
        weight_share: part of the backward that is the weight gradient, where the schedule splits it.
        offload_seconds: copy of one chunk's activations to the host or back, where the schedule offloads.

    Returns:
        A program whose memory is counted in the unit of ``Schedule.in_flight``.

    Raises:
        InputError: the schedule cannot run with these numbers.
    """
    stages, micro_batches, chunks = (
        int(number) for number in (times.stages, times.micro_batches, times.chunks)
    )
    schedule.check(stages, micro_batches, chunks)
    route = schedule.routes(stages, chunks)[0]
    forward, backward = position_times(times, route)
    later = weight_share if schedule.splits_backward else 0.0
    micro_batch_share = stages / len(route)
    work = tuple(
        ChunkWork(
            forward=(StreamWork("forward", f),),
            backward=(StreamWork("backward", b * (1 - later)),),
            weight=(StreamWork("weight gradient", b * later),),
            activation=micro_batch_share,
            activation_for_weight=micro_batch_share,
            offload=StreamWork(
                "offload", offload_seconds, load=LinkDemand(sent=(("host", micro_batch_share),))
            ),
        )
        for f, b in zip(forward, backward, strict=True)
    )
    return StepProgram(
        schedule=schedule,
        stages=stages,
        micro_batches=micro_batches,
        chunks=chunks,
        work=work,
        transfer=StreamWork("send", float(times.transfer), PIPELINE),
        blocking=not bool(times.overlap_transfer),
    )
