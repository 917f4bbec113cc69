"""Measured steps in the logs of Megatron-LM, torchtitan, NeMo, DeepSpeed and Hugging Face's Trainer.

Megatron-LM prints ``elapsed time per iteration (ms)`` and ``global batch size`` in one line an interval, and
memory in MiB (training/training.py: training_log; training/utils.py: report_memory). torchtitan prints tokens
per second and device (``tps``) and the reserved memory (components/metrics.py: MetricsProcessor.log). NeMo
and Lightning print ``train_step_timing in s``, NeMo 2 with the global batch (lightning/pytorch/callbacks/
progress_printer.py), DeepSpeed samples per second of all ranks (utils/timer.py: ThroughputTimer), the Trainer
one summary of the run (trainer_utils.py: speed_metrics).
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
NEMO = {"elapsed": re.compile(r"train_step_timing in s\s*[:=]\s*([^\s|,\]]+)")}
NEMO_BATCH = re.compile(r"global_batch_size:\s*([^\s|,]+)")
DEEPSPEED = {"rate": re.compile(r"CurrSamplesPerSec=([^\s,]+)")}
DEEPSPEED_MEMORY = re.compile(r"MaxMemAllocated=([^\s,]+?)GB")
TRAINER = {"rate": re.compile(r"['\"]?train_steps_per_second['\"]?\s*[:=]\s*['\"]?([^\s,}'\"]+)")}
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
    plan = scenario.needed_plan(str(scenario_path), "states no plan")
    lines = [line[:LONGEST_LINE] for line in read_text(path).splitlines()]
    lines = [COLOURS.sub("", line) for line in lines if any(word in line for word in WORDS)]
    steps, peaks = _megatron(lines, scenario, str(path)) or _torchtitan(lines, scenario)
    if not steps:
        steps, peaks = _nemo(lines, scenario, str(path)) or _deepspeed(lines, scenario) or _trainer(lines)
    if not steps:
        raise InputError(
            "no line states a step time as Megatron-LM ('elapsed time per iteration (ms): ...'), torchtitan "
            "('step: ... tps: ...'), NeMo ('train_step_timing in s: ...'), DeepSpeed "
            "('CurrSamplesPerSec=...') or the Trainer ('train_steps_per_second') prints it",
            str(path),
        )
    name = f"{path.parent.name}/{path.name}"
    peak = max(peaks) if peaks else None
    return MeasuredStep(name, scenario.setting, plan, median(steps[1:] or steps), peak)


WORDS = ("iteration", "memory", "step:", "train_step_timing", "SamplesPerSec", "train_steps_per_second")
"""Words of the lines that are looked at."""


def _figures(line: str, patterns: Mapping[str, re.Pattern[str]]) -> dict[str, float] | None:
    """The figures of a line by name; None where one is missing or is no measured figure."""
    texts = {name: pattern.search(line) for name, pattern in patterns.items()}
    figures = {name: measured(text[1]) for name, text in texts.items() if text is not None}
    read = {name: figure for name, figure in figures.items() if figure is not None}
    return read if len(read) == len(patterns) else None


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
    lines_read = [figures for figures in reported if figures is not None]
    tokens = scenario.setting.training.tokens / scenario.setting.cluster.devices
    return [tokens / figures["rate"] for figures in lines_read], [
        figures["memory"] * 2**30 for figures in lines_read
    ]


Reported = tuple[list[float], list[float]]
"""Seconds of steps, and bytes of peaks."""


def _nemo(lines: Sequence[str], scenario: Scenario, where: str) -> Reported | None:
    """Steps of NeMo and Lightning; None in no log of them.

    Raises:
        InputError: the batch that it states is not the scenario's.
    """
    stated = {figures["batch"] for line in lines if (figures := _figures(line, {"batch": NEMO_BATCH}))}
    batch = scenario.setting.training.global_batch
    reported = [figures["elapsed"] for line in lines if (figures := _figures(line, NEMO))]
    if reported and stated and batch not in stated:
        sizes = ", ".join(f"{size:.0f}" for size in sorted(stated))
        raise InputError(
            f"the global batch is {sizes} sequences; the scenario beside it states {batch}", where
        )
    return (reported, []) if reported else None


def _deepspeed(lines: Sequence[str], scenario: Scenario) -> Reported | None:
    """Steps of DeepSpeed's throughput timer, whose rate is of all ranks."""
    rates = [figures["rate"] for line in lines if (figures := _figures(line, DEEPSPEED))]
    peaks = [figures["peak"] for line in lines if (figures := _figures(line, {"peak": DEEPSPEED_MEMORY}))]
    batch = scenario.setting.training.global_batch
    return ([batch / rate for rate in rates], [peak * 2**30 for peak in peaks]) if rates else None


def _trainer(lines: Sequence[str]) -> Reported:
    """The mean step of a run of the Trainer, its first included."""
    rates = [figures["rate"] for line in lines if (figures := _figures(line, TRAINER))]
    return [1.0 / rate for rate in rates[-1:]], []
