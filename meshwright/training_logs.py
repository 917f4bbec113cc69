"""Measured steps in the logs that Megatron-LM and torchtitan print.

Megatron-LM prints ``elapsed time per iteration (ms)`` and ``global batch size`` in one line an interval, and
memory in MiB (training/training.py: training_log; training/utils.py: report_memory). torchtitan prints tokens
per second and device (``tps``) and the reserved memory (components/metrics.py: MetricsProcessor.log).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from core.errors import InputError
from core.loading import read_text
from core.written_numbers import measured
from simulator.scenario import Scenario, read_scenario
from simulator.uncertainty.learning import MeasuredStep

SUFFIXES = (".log", ".out", ".txt")
"""Suffixes of files that are read as logs."""
PLAN = "plan.yaml"
"""The scenario of a log, in its folder, as ``plan --trials`` writes it."""

LONGEST_LINE = 4096
"""Characters of a line that are looked at: a line of a step is a tenth as long."""
STEPS_OF_MEGATRON = re.compile(r"\biteration\s+\d+/\s*\w+ \|")
MEGATRON = {
    "elapsed": re.compile(r"elapsed time per iteration \(ms\): ([^\s|]+)"),
    "batch": re.compile(r"global batch size:\s*([^\s|]+)"),
}
MEGATRON_MEMORY = re.compile(r"max reserved: ([^\s|]+)")
STEPS_OF_TORCHTITAN = re.compile(r"(?<!validate )\bstep:\s*\d+\s+loss:")
TORCHTITAN = {"memory": re.compile(r"memory:\s*([^\s(]+)GiB"), "rate": re.compile(r"\btps:\s*(\S+)")}
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
    lines = [line[:LONGEST_LINE] for line in read_text(path).splitlines()]
    lines = [
        COLOURS.sub("", line) for line in lines if "iteration" in line or "memory" in line or "step:" in line
    ]
    steps, peaks = _megatron(lines, scenario, str(path)) or _torchtitan(lines, scenario)
    if not steps:
        raise InputError(
            "no line states a step time as Megatron-LM ('elapsed time per iteration (ms): ...') or "
            "torchtitan ('step: ... tps: ...') prints it",
            str(path),
        )
    name = f"{path.parent.name}/{path.name}"
    peak = max(peaks) if peaks else None
    return MeasuredStep(name, scenario.setting, scenario.plan, median(steps[1:] or steps), peak)


def _figures(line: str, patterns: Mapping[str, re.Pattern[str]]) -> dict[str, float] | None:
    """The figures of a line by name; None where one is missing or is no measured figure."""
    texts = {name: pattern.search(line) for name, pattern in patterns.items()}
    figures = {name: measured(text[1]) for name, text in texts.items() if text is not None}
    known = {name: figure for name, figure in figures.items() if figure is not None}
    return known if len(known) == len(patterns) else None


def _megatron(lines: Sequence[str], scenario: Scenario, where: str) -> tuple[list[float], list[float]] | None:
    """Seconds of the reported steps and bytes of the reported peaks; None in no log of Megatron-LM.

    Raises:
        InputError: no reported batch is the scenario's.
    """
    reported = [
        figures
        for line in lines
        if STEPS_OF_MEGATRON.search(line) and (figures := _figures(line, MEGATRON)) is not None
    ]
    if not reported:
        return None
    batch = scenario.setting.training.global_batch
    steps = [figures["elapsed"] / 1e3 for figures in reported if figures["batch"] == batch]
    if not steps:
        raise InputError(
            f"the global batch is {reported[-1]['batch']:.0f} sequences; the scenario beside it states "
            f"{batch}",
            where,
        )
    peaks = [_figures(line, {"peak": MEGATRON_MEMORY}) for line in lines if "memory (MB) |" in line]
    return steps, [figures["peak"] * 2**20 for figures in peaks if figures is not None]


def _torchtitan(lines: Sequence[str], scenario: Scenario) -> tuple[list[float], list[float]]:
    """Seconds of the reported steps and bytes of the reported peaks."""
    reported = [_figures(line, TORCHTITAN) for line in lines if STEPS_OF_TORCHTITAN.search(line)]
    known = [figures for figures in reported if figures is not None]
    tokens = scenario.setting.training.tokens / scenario.setting.cluster.devices
    return [tokens / figures["rate"] for figures in known], [figures["memory"] * 2**30 for figures in known]
