"""Constants that come from whole steps: which rows they reach, and what they do to rows of other sources.

    python -m benchmarks.step_constants RUNS.csv [MORE.csv ...] [--kept-apart NEW.csv]

Each constant is taken away in turn (its value without any step) and the runs are predicted again. Rows that
move by more than a thousandth are reached. The effect is the change of the median error of reached rows,
apart for sources that the constant was chosen on and for all others: it helps where the median is smaller
with the constant, hurts where it is larger, and is untested where no other source is reached. Rows kept
apart are not read.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from hwmodels.collectives.calibration import fabric_calibrations
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.ledger import PredictedCase, predicted
from meshwright.validation.parts import kept_apart, source_of
from meshwright.validation.rows import published_files, read_rows
from simulator import variation
from simulator.pricing import kernels
from simulator.training import overlap

REACHED = 1e-3
"""Relative change of a predicted step from which on a constant reaches a row."""

EVEN = 0.002
"""Change of a median error that counts as none."""

Change = Callable[[TrainingCase], TrainingCase]


@dataclass(frozen=True)
class StepConstant:
    """A constant chosen on whole steps.

    Args:
        name: what it is, with its place.
        value: with its unit.
        sources: whose rows it was chosen on.
        rows: the rows, in words.
        without: the case without it.
        patched: module, attribute and value without it, for constants of code.
    """

    name: str
    value: str
    sources: tuple[str, ...]
    rows: str
    without: Change = lambda case: case
    patched: tuple[Any, str, Any] | None = None

    @contextmanager
    def taken_away(self) -> Iterator[None]:
        """Code constants at their value without steps."""
        with patch.object(*self.patched) if self.patched else nullcontext():
            yield


def framework(**update: Any) -> Change:
    """Frameworks with other values, where a case's framework has the value of the constant."""
    old, new = update.pop("old"), update

    def change(case: TrainingCase) -> TrainingCase:
        own = case.setting.framework
        if any(getattr(own, key) != old for key in new):
            return case
        return replace(case, setting=replace(case.setting, framework=own.model_copy(update=new)))

    return change


def host(old: float) -> Change:
    """Hosts as fast as DGX's."""

    def change(case: TrainingCase) -> TrainingCase:
        cluster = case.setting.cluster
        if cluster.host_slowdown != old:
            return case
        even = cluster.model_copy(update={"host_slowdown": 1.0})
        return replace(case, setting=replace(case.setting, cluster=even))

    return change


def load(old: float) -> Change:
    """Balanced experts."""

    def change(case: TrainingCase) -> TrainingCase:
        training = case.setting.training
        if training.expert_load != old:
            return case
        balanced = training.model_copy(update={"expert_load": 1.0})
        return replace(case, setting=replace(case.setting, training=balanced))

    return change


@contextmanager
def fabric(name: str, key: str, value: Any) -> Iterator[None]:
    """A fabric's constants with another value."""
    found = fabric_calibrations.get(name)
    old = getattr(found, key)
    object.__setattr__(found, key, value)
    try:
        yield
    finally:
        object.__setattr__(found, key, old)


OLDER = {key: share for key, share in kernels.OLDER_KERNELS.items() if key != ("flash-1-triton", "ampere")}

CONSTANTS = (
    StepConstant(
        "launch of a kernel, Megatron Core (frameworks)",
        "45 us",
        ("DGXC", "MB"),
        "two launch-bound steps with experts on H100",
        framework(old=4.5e-5, host_seconds_per_kernel=13.5e-6),
    ),
    StepConstant(
        "the same where processes are not bound (words)",
        "67.5 us",
        ("MDSV",),
        "factor of torch's launches on Grace over 1.83",
        framework(old=6.75e-5, host_seconds_per_kernel=4.5e-5),
    ),
    StepConstant(
        "host of Grace (clusters)", "1.83", ("MB",), "steps of Qwen3-30B on GB200; issue 2053", host(1.83)
    ),
    StepConstant("host of aws-p5 (clusters)", "1.8", ("AWSEP",), "one step of Qwen3-30B", host(1.8)),
    StepConstant(
        "products of ROCm 5 (words)",
        "0.8",
        ("AMD2",),
        "five steps of LUMI",
        framework(old=0.8, product_share=1.0),
    ),
    StepConstant(
        "load of routers without balancing (words)", "2.3", ("PCOM",), "published loads, not steps", load(2.3)
    ),
    StepConstant(
        "load of a trained router (words)", "1.06", ("ZOOMX",), "the two rows themselves", load(1.06)
    ),
    StepConstant(
        "fetch of a micro batch, Megatron-LM (frameworks)",
        "3.6 ms",
        ("ZB",),
        "profiled passes of Zero Bubble's Table 6",
        framework(old=3.6e-3, fetch_seconds=0.0),
    ),
    StepConstant(
        "exchange of stages, Megatron-DeepSpeed (frameworks)",
        "0.42 ms",
        ("ZB",),
        "the same",
        framework(old=4.2e-4, exchange_seconds=0.0),
    ),
    StepConstant(
        "masks on the host, OpenLLM's fork (words)",
        "3 ns",
        ("LUC",),
        "one timed core, no step",
        framework(old=3.0e-9, mask_seconds=0.0),
    ),
    StepConstant(
        "kernels beside a collective (overlap.py)",
        "0.35",
        ("NEMO",),
        "H100 rows of NeMo; published overlap studies",
        patched=(overlap, "SLOWDOWN", {"nvidia": 0.12, "amd": 0.12}),
    ),
    StepConstant(
        "jitter of a step (variation.py)",
        "0.003",
        ("NEMO",),
        "slope of Nemotron 15B over 16 to 2,048 H100",
        patched=(variation, "JITTER", 0.0),
    ),
    StepConstant(
        "FlashAttention-1 in Triton, heads of 64 (simulator/pricing/kernels.py)",
        "0.54",
        ("LLMF",),
        "three steps of MPT-350m",
        patched=(kernels, "OLDER_KERNELS", {**OLDER, ("flash-1-triton", "ampere"): (0.626, 0.5)}),
    ),
)

FABRICS = (
    (
        "traffic of a group, Omni-Path 2024",
        "206 Gb/s",
        ("LUC",),
        "two steps",
        "omni-path-2024",
        "group_gbps",
        100.0,
    ),
    (
        "NICs of a ring's part, Slingshot",
        "1 share",
        ("AMD2",),
        "two steps of 33B",
        "slingshot",
        "part_ring_shares",
        None,
    ),
)


def arguments() -> argparse.Namespace:
    """Files of runs; those that ship by default."""
    parser = argparse.ArgumentParser(description="Constants that come from whole steps.")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--kept-apart", type=Path, action="append", default=[])
    return parser.parse_args()


def open_cases(files: list[Path], divided: list[Path]) -> list[TrainingCase]:
    """Cases with a measured step that nobody keeps apart."""
    silent = {name for path in divided for name in kept_apart(row["case_id"] for row in read_rows(path))}
    cases = [case for path in (*files, *divided) for case in read_cases(path)[0]]
    return [case for case in cases if case.measured_step_s and case.case_id not in silent]


def errors(cases: list[TrainingCase]) -> dict[str, PredictedCase]:
    """Predictions by case; copies of settings, which keep what they computed before."""
    fresh = [replace(case, setting=replace(case.setting)) for case in cases]
    return {entry.case.case_id: entry for entry in predicted(fresh)}


def line(name, value, sources, rows, base, other) -> str:
    """One row of the table."""
    reached = [
        key
        for key in base
        if key in other and abs(other[key].predicted_step_s / base[key].predicted_step_s - 1) > REACHED
    ]
    cells = [name, value, ", ".join(sources), rows, str(len(reached))]
    for inside in (True, False):
        keys = [key for key in reached if (source_of(key) in sources) == inside]
        if not keys:
            cells.append("" if inside else "untested")
            continue
        now, gone = (np.median([abs(e[key].relative_error) for key in keys]) for e in (base, other))
        word = "even" if abs(now - gone) < EVEN else "helps" if now < gone else "hurts"
        cells.append(f"{len(keys)}: {now:.1%}, without {gone:.1%}" + ("" if inside else f": {word}"))
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table as Markdown."""
    asked = arguments()
    cases = open_cases(asked.files or ([] if asked.kept_apart else published_files()), asked.kept_apart)
    base = errors(cases)
    print("| constant | value | chosen on | rows | reaches | own sources, median | other sources, median |")
    print("|---|---|---|---|---|---|---|")
    for each in CONSTANTS:
        with each.taken_away():
            other = errors([each.without(case) for case in cases])
        print(line(each.name, each.value, each.sources, each.rows, base, other))
    for name, value, sources, rows, calibration, key, without in FABRICS:
        with fabric(calibration, key, without):
            other = errors(cases)
        print(line(name, value, sources, rows, base, other))


if __name__ == "__main__":
    main()
