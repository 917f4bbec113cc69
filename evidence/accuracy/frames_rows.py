"""Frames a second of samplers that EnvPool's benchmark measured on four machines, and predictions.

    python -m benchmarks.frames_rows

Rows: sail-sg/envpool, docs/content/benchmark.md (0.5.3.post1): random actions in Pong (4 frames a step) and
Ant (5), from 1 thread to all. A step's seconds are those of a sampler's own rows with one thread (of
EnvPool's first-results mode for both of its modes, of the loop for processes), which are no predictions.
The spread of steps and the host times of samplers that wait are fitted on the rows of the *other* machines.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from scipy.optimize import least_squares

from evidence.accuracy.errors import Errors
from evidence.command import command
from simulator.frames.question import FramesSetting, make_frames
from simulator.frames.rates import predict_frames

ROWS = Path(__file__).with_suffix(".csv")
FRAMES = {"atari": 4, "mujoco": 5}
ALONE = {"envpool": "envpool-async", "envpool-numa": "envpool-async", "subprocess": "for-loop"}
"""Whose row of one thread has a sampler's step."""
BEGIN = (0.4, 0.4, 5e-5, 5e-5, 5e-5)
"""Spreads of Pong and Ant, cycles of EnvPool and of processes, time of each process, s: where fits begin."""
LEAST, MOST = (0.01, 0.01, 0.0, 0.0, 0.0), (2.0, 2.0, 1e-2, 1e-2, 1e-2)


class SamplerRow(NamedTuple):
    """A measured row, and its setting with the constants that ship."""

    name: str
    machine: str
    environment: str
    setting: FramesSetting
    frames_s: float


def measured_rows() -> list[SamplerRow]:
    """Rows that a law predicts: all but loops, and one thread of samplers that wait for none."""
    with ROWS.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    alone = {
        (row["environment"], row["machine"], row["sampler"]): float(row["frames_s"])
        for row in rows
        if row["threads"] == "1"
    }
    sampler_rows = []
    for row in rows:
        name, first = row["sampler"], row["sampler"] not in ("envpool", "subprocess")
        if name == "for-loop" or (first and row["threads"] == "1"):
            continue
        frames = FRAMES[row["environment"]]
        frames_alone = alone[row["environment"], row["machine"], ALONE.get(name, name)]
        scenario = {
            "cluster": "dgx-a100-80gb",
            "workload": {"kind": "frames", "frames": frames},
            "environments": {
                "seconds": frames / frames_alone,
                "cores": int(row["cores"]),
                "threads": int(row["threads"]),
            },
            "sampler": "envpool-async" if name == "envpool-numa" else name,
        }
        setting = make_frames(scenario, name, Path())
        sampler_rows.append(
            SamplerRow(name, row["machine"], row["environment"], setting, float(row["frames_s"]))
        )
    return sampler_rows


def predicted(row: SamplerRow, constants: Sequence[float]) -> float:
    """Frames a second with some spreads and host times."""
    pong, ant, pool, cycle, environment = constants
    times = {"envpool": {"cycle_s": pool}, "subprocess": {"cycle_s": cycle, "environment_s": environment}}
    setting = row.setting
    simulators = setting.environments.model_copy(
        update={"sigma": pong if row.environment == "atari" else ant}
    )
    sampler = setting.sampler.model_copy(update=times.get(row.name, {}))
    return predict_frames(replace(setting, environments=simulators, sampler=sampler)).frames_s


def fitted(rows: Sequence[SamplerRow]) -> list[float]:
    """Spreads and host times that fit some rows best, relative errors, large ones counted less."""
    waiting = [row for row in rows if row.setting.sampler.waits == "all"]

    def errors(constants: Sequence[float]) -> list[float]:
        return [math.log(predicted(row, constants) / row.frames_s) for row in waiting]

    options = {"loss": "soft_l1", "f_scale": 0.2, "diff_step": 1e-3}
    return [float(value) for value in least_squares(errors, BEGIN, bounds=(LEAST, MOST), **options).x]


@command
def main() -> None:
    rows, errors, even_steps = measured_rows(), Errors(), Errors()
    for machine in dict.fromkeys(row.machine for row in rows):
        constants = fitted([row for row in rows if row.machine != machine])
        print(f"without {machine}: " + ", ".join(f"{value:.2g}" for value in constants), flush=True)
        for row in rows:
            if row.machine == machine:
                errors.add(predicted(row, constants), row.frames_s, row.name, machine, "all")
                if row.setting.sampler.waits == "all":
                    even_steps.add(predicted(row, LEAST), row.frames_s, "waiting, steps alike, no host time")
    print("on all machines: " + ", ".join(f"{value:.3g}" for value in fitted(rows)))
    print("\n".join((*errors.lines("machine left out, %"), *list(even_steps.lines())[1:])))
