"""Length of a step's run on the event engine, before it starts."""

from __future__ import annotations

from collections.abc import Callable

from core.errors import InputError
from simulator.training.step_graph.step import StepProgram, meets

MOST_MICRO_BATCHES = 2**15
"""Maximum micro batches of a step on the engine: ten times those of the longest published pipeline."""
LONGEST_S = 12.0
"""Longest engine run allowed, CPU seconds of a quiet core; 1.5 million tasks take 0.4 GB."""
TASK_S, MEETING_S = 8e-6, 14e-6
"""CPU seconds per task of the engine (`benchmarks.engine`), and per task whose communication meets other
communication on a link (ZeRO-3 beside tensor parallelism: 1.75 times a task alone)."""
SEGMENT_S = 0.3e-6
"""CPU seconds per kernel or collective that is read from a pass."""
NOTICED_S = 2.0
"""Minimum length of an engine run that is announced, s."""


def segments(program: StepProgram) -> int:
    """Kernels and collectives in all passes of a step."""
    passes = (part for work in program.work for part in (work.forward, work.backward, work.weight))
    return program.micro_batches * sum(map(len, passes))


def engine_tasks(program: StepProgram) -> int:
    """Estimate of the engine's tasks in a step.

    An uninterrupted pass is one task; a pass that gathers parameters or completes gradients has one for every
    kernel, and so have all passes whose own communication may meet such collectives on a link.
    """
    micro_batches, sends = program.micro_batches, 1 if program.stages > 1 else 0
    gathering = micro_batches if program.gather == "pass" else 1
    reducing = micro_batches if program.reduce == "pass" else 1
    # Of collectives once a step: passes of other chunks between the first of them and the last.
    between = min(program.stages, micro_batches) * (program.chunks - 1) // program.chunks
    between = max(between, 1) if meets(program.work) else 1
    tasks = 0
    for work in program.work:
        last = work.weight or work.backward
        again = work.backward_gathers if program.gather == "pass" else ()
        split = {id(work.forward): max(gathering, between) if work.forward_gathers else 0}
        split[id(work.backward)] = gathering if again else 0
        split[id(last)] = max(split.get(id(last), 0), max(reducing, between) if work.reductions else 0)
        tasks += gathering * (len(work.forward_gathers) + len(again)) + reducing * len(work.reductions)
        everywhere = program.detail or ("pass" in (program.gather, program.reduce) and meets([work]))
        for parts in filter(None, (work.forward, work.backward, work.weight)):
            cut = micro_batches if everywhere else split[id(parts)]
            tasks += cut * len(parts) + (micro_batches - cut) + micro_batches * sends
    return tasks * len(program.replicas)


def check_length(program: StepProgram, notice: Callable[[str], None] | None = None) -> None:
    """Announce the length of a long engine run.

    Raises:
        InputError: the run is too long for time and memory.
    """
    tasks = engine_tasks(program)
    meeting = "pass" in (program.gather, program.reduce) and meets(program.work)
    seconds = tasks * (MEETING_S if meeting else TASK_S) + segments(program) * SEGMENT_S
    if seconds > LONGEST_S or program.micro_batches > MOST_MICRO_BATCHES:
        raise InputError(
            f"the event engine would run about {tasks:,} tasks for {program.micro_batches:,} micro batches, "
            f"{seconds:,.0f} s; at most {LONGEST_S:.0f} s and {MOST_MICRO_BATCHES:,} micro batches "
            "are allowed: a smaller global_batch, or more data or micro_batch, is shorter"
        )
    if notice is not None and seconds >= NOTICED_S:
        notice(f"the event engine runs about {tasks:,} tasks, {seconds:.0f} s")
