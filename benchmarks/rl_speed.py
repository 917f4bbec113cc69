"""Speed of questions of post-training: ``python -m benchmarks.rl_speed [--repeats 3]``.

Prints CPU seconds on one core: 2,048 rollouts of up to 4,096 tokens on the event engine and by the closed
form, and `plan rl` on 256 GPUs, on policy and four steps off. The question is `rl-qwen3-30b` of the shipped
scenarios, on 256 GPUs with eight times its prompts. Imports and catalogues are read before, engines are laid
out before their rollouts; the smallest CPU time of the repeats counts, `plan rl` runs once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from core.errors import InputError
from evidence.command import command
from meshwright.questions.scenarios import read_question
from planner.rl import search_rl
from simulator.rl.drain import plain_steps, rollout_seconds
from simulator.rl.scenario import make_rl
from simulator.serving.result import serve

SCENARIO = "rl-qwen3-30b"
TOP = 5
"""Plans to keep, as the command does by default."""
CLOSED = 100
"""Runs of the closed form that are timed as one: a run is shorter than the clock's tick."""
WIDE = 8
"""Times the devices and prompts of the scenario: 256 GPUs."""


def cpu_seconds(work: Callable[[], Any], repeats: int) -> float:
    """The smallest CPU time of some repeats."""
    runs_s = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        runs_s.append(time.process_time() - start)
    return min(runs_s)


@command
def main(*, repeats: int = 3) -> None:
    """Print a line a figure."""
    data, where, folder = read_question(SCENARIO)
    setting = make_rl(data, where, folder)
    rollouts, steps = setting.rollouts, plain_steps(setting.rollouts)
    if steps is None:
        raise InputError("the closed form does not cover these rollouts", SCENARIO)
    engine = cpu_seconds(lambda: serve(rollouts), repeats)
    closed = cpu_seconds(
        lambda: [rollout_seconds(rollouts, steps, setting.workload) for _ in range(CLOSED)], repeats
    )
    print(
        f"{setting.workload.answers:,} rollouts of up to {setting.workload.longest:,} tokens: "
        f"event engine {engine:.2f} s, closed form {1e3 * closed / CLOSED:.1f} ms",
        flush=True,
    )
    workload = data["workload"]
    wide = {
        **data,
        "gpus": WIDE * data["gpus"],
        "workload": {**workload, "prompts": WIDE * workload["prompts"]},
    }
    for staleness in (0.0, 4.0):
        search_s = cpu_seconds(partial(search_rl, wide, where, folder, staleness, TOP), 1)
        print(f"plan rl on {wide['gpus']} GPUs, staleness {staleness:g}: {search_s:.1f} s", flush=True)
