"""Speed of the event engine: run with ``python -m benchmarks.engine``.

Prints tasks per second of the clock alone and with the making of the tasks (one core, CPU time), time
and memory of the steps that the project promises, and how the cost grows with tasks and with the
data-parallel size.
"""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.from_times import from_times
from evidence.command import command
from simulator.engine import Clock, Contention, collector_paused
from simulator.scenario import make_scenario
from simulator.schedules import PipelineTimes, get_schedule
from simulator.training.step_graph import Replicas, StepProgram
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.expand import expand


def pipeline(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> StepProgram:
    times = PipelineTimes.of_equal(
        stages, micro_batches, chunks, (1.1, 1.0, 1.2), (2.1, 2.0, 2.4), 0.01, True
    )
    return from_times(get_schedule(schedule), times)


def real(model: str, gpus: int, batch: int, **plan: object) -> StepProgram:
    data = {
        "model": model,
        "cluster": "selene",
        "gpus": gpus,
        "workload": {"seq_len": 2048, "global_batch": batch},
        "plan": {"recompute": "full", **plan},
    }
    scenario = make_scenario(data, "benchmark", Path("."))
    return step_program(scenario.setting, scenario.needed_plan("benchmark"))


def timed(label: str, program: StepProgram) -> None:
    with collector_paused():
        begin = time.process_time()
        graph = expand(program)
        built_s = time.process_time()
        Clock(graph, program.contention).run()
        end = time.process_time()
    print(
        f"{label:54} {len(graph):9,d} tasks {end - begin:6.2f} s "
        f"{len(graph) / (end - built_s):9,.0f} tasks/s, {len(graph) / (end - begin):9,.0f} with making them; "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:5.0f} MiB"
    )


@command
def main() -> None:
    timed("16 stages x 192 micro batches, 1f1b", pipeline("1f1b", 16, 192))
    timed("16 stages x 192 micro batches, interleaved 6", pipeline("interleaved", 16, 192, 6))
    for micro_batches in (100, 200, 400, 800):
        timed(f"linear in tasks: 64 stages x {micro_batches}", pipeline("1f1b", 64, micro_batches))
    timed("64 stages x 1,600 micro batches, 1f1b", pipeline("1f1b", 64, 1600))
    timed("64 stages x 1,600 micro batches, interleaved 2", pipeline("interleaved", 64, 1600, 2))
    base = pipeline("1f1b", 16, 192)
    for copies in (8, 782):
        program = replace(base, replicas=(Replicas(copies),))
        timed(f"{16 * 8 * copies:,} GPUs: tensor 8 x 16 stages x {copies} replicas", program)
    timed("16 x 192 with contention on every rank", replace(base, contention=Contention(1.05, 1.2)))
    timed(
        "GPT-3 175B, 1,024 A100s, 16 stages x 192, from costs",
        real("gpt3-175b", 1024, 1536, tensor=8, pipeline=16),
    )
    timed(
        "the same, interleaved 6, sends that meet on links",
        real("gpt3-175b", 1024, 1536, tensor=8, pipeline=16, virtual_pipeline=6, overlap_pipeline=True),
    )
    timed(
        "GPT 1T, 3,072 A100s, 64 stages x 1,600, from costs",
        real("gpt-1t", 3072, 9600, tensor=8, pipeline=64),
    )
