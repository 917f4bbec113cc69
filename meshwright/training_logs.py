"""Measured steps in the logs that Megatron-LM and torchtitan print.

Megatron-LM prints ``elapsed time per iteration (ms)`` and ``global batch size`` in one line an interval, and
memory in MiB (training/training.py: training_log; training/utils.py: report_memory). torchtitan prints tokens
per second and device (``tps``) and the reserved memory (components/metrics.py: MetricsProcessor.log).
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

from core.errors import InputError
from core.loading import read_text
from simulator.scenario import Scenario, read_scenario
from simulator.uncertainty.learning import MeasuredStep

SUFFIXES = (".log", ".out", ".txt")
"""Suffixes of files that are read as logs."""
PLAN = "plan.yaml"
"""The scenario of a log, in its folder, as ``plan --trials`` writes it."""

MEGATRON = re.compile(
    r"\biteration\s+\d+/\s*\w+ \|.*?elapsed time per iteration \(ms\): ([\d.]+) \|"
    r".*?global batch size:\s*(\d+) \|"
)
MEGATRON_MEMORY = re.compile(r"memory \(MB\) \|.*?max reserved: ([\d.]+)")
TORCHTITAN = re.compile(
    r"(?<!validate )\bstep:\s*\d+\s+loss:.*?memory:\s*([\d.]+)GiB\([\d.]+%\)\s+tps:\s*([\d,]+)"
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def read_log(path: Path) -> MeasuredStep:
    """The measured step of a log, whose scenario is ``plan.yaml`` in the same folder.

    The step is the median of the reported ones; the first is left out where there are more, as it holds
    compilation and warm-up. The peak is the most memory that a rank reserved.

    Raises:
        InputError: unreadable, no scenario with a plan beside it, no line with a step time, or a batch that
            is not the scenario's.
    """
    scenario_path = path.parent / PLAN
    if not scenario_path.is_file():
        raise InputError(f"the scenario of a log is {PLAN} in its folder; there is none", str(path))
    scenario = read_scenario(scenario_path)
    if scenario.plan is None:
        raise InputError("states no plan", str(scenario_path))
    text = COLOURS.sub("", read_text(path))
    steps, peaks = _megatron(text, scenario, str(path)) or _torchtitan(text, scenario)
    if not steps:
        raise InputError(
            "no line states a step time as Megatron-LM ('elapsed time per iteration (ms): ...') or "
            "torchtitan ('step: ... tps: ...') prints it",
            str(path),
        )
    name = f"{path.parent.name}/{path.name}"
    peak = max(peaks) if peaks else None
    return MeasuredStep(name, scenario.setting, scenario.plan, median(steps[1:] or steps), peak)


def _megatron(text: str, scenario: Scenario, where: str) -> tuple[list[float], list[float]] | None:
    """Seconds of the reported steps and bytes of the reported peaks; None in no log of Megatron-LM.

    Raises:
        InputError: no reported batch is the scenario's.
    """
    lines = MEGATRON.findall(text)
    if not lines:
        return None
    batch = scenario.setting.training.global_batch
    steps = [float(elapsed) / 1e3 for elapsed, size in lines if int(size) == batch]
    if not steps:
        raise InputError(
            f"the global batch is {lines[-1][1]} sequences; the scenario beside it states {batch}", where
        )
    return steps, [float(size) * 2**20 for size in MEGATRON_MEMORY.findall(text)]


def _torchtitan(text: str, scenario: Scenario) -> tuple[list[float], list[float]]:
    """Seconds of the reported steps and bytes of the reported peaks."""
    lines = [(float(memory), float(rate.replace(",", ""))) for memory, rate in TORCHTITAN.findall(text)]
    own = scenario.setting.training.tokens / scenario.setting.cluster.devices
    return [own / rate for _, rate in lines if rate], [memory * 2**30 for memory, _ in lines]
