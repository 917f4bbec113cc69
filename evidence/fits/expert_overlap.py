"""Overlap of the exchange with experts on H100: the slow-down of kernels that published runs imply.

    python -m benchmarks.expert_overlap

Pairs show the effect of the overlap (steps without it over steps with it), rows the error of steps that have
it. The last lines fit the slow-down to all of them, and again without each source.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hwmodels.generation import generations
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.rows import published_files
from planner.training.prediction import simulate_plan
from simulator.plan import Plan
from simulator.setting import Setting

ALL_TO_ALL = "Megatron-Bridge pull request 3862 (all-to-all)"
HYBRID = "Megatron-Bridge pull requests 5094, 5123, 5225 (HybridEP)"
SHARES = np.arange(0.35, 0.801, 0.05)


class Observation(NamedTuple):
    """A published pair of runs or a row.

    ``measured`` is the step without the overlap over that with it, or the step, s; ``pair`` says which.
    """

    source: str
    measured: float
    setting: Setting
    plan: Plan
    pair: bool = True


def _row(cases: list[TrainingCase], ending: str) -> TrainingCase:
    return next(case for case in cases if case.case_id.endswith(ending))


def observations() -> list[Observation]:
    """Pairs on H100 that differ in the overlap alone, and rows that have it."""
    (table,) = (path for path in published_files() if path.name == "megatron_bridge.csv")
    cases, _ = read_cases(table)
    all_to_all, hybrid = (
        _row(cases, f"2026.0{month}-qwen3-30b-a3b-h100-16-{name}-overlap")
        for month, name in ((5, "alltoall"), (7, "hybridep"))
    )
    deep = _row(cases, "26.04.01-deepseek-v3-b200-256-mxfp8")
    host = _row(cases, "26.02-gpt-oss-120b-h100-64-bf16")
    training = host.setting.training.model_copy(update={"seq_len": 2048, "global_batch": 256})
    model = deep.setting.model.model_copy(update={"layers": 14})
    plan = deep.plan.model_copy(
        update={
            "dispatcher": "all-to-all",
            "dispatcher_library": None,
            "graphs": "none",
            "recompute": "full",
            "recompute_modules": None,
            "pipeline": 4,
            "virtual_pipeline": 2,
            "data": 16,
            "expert": 16,
            "overlap_tensor": "backward",
        }
    )
    shallow = Setting(model, host.setting.cluster, training, host.setting.framework)
    tuned = _row(cases, "2026.07-qwen3-30b-a3b-h100-16-hybridep-tuned")
    rows = [
        Observation(name, case.measured_step_s, *_of(case), False)
        for name, case in ((ALL_TO_ALL, all_to_all), (HYBRID, hybrid), (HYBRID, tuned), *_summary(cases))
        if case.measured_step_s
    ]
    return [
        Observation(ALL_TO_ALL, 41.25 / 31.31, *_of(all_to_all)),
        Observation(HYBRID, 24.7138 / 20.9921, *_of(hybrid)),
        Observation("Megatron-LM pull request 6429 (DeepSeek-V3, 14 layers)", 3.044 / 2.839, shallow, plan),
        *rows,
    ]


def _summary(cases: list[TrainingCase]) -> list[tuple[str, TrainingCase]]:
    """Rows of Megatron Bridge's performance summary."""
    return [
        ("Megatron Bridge performance summary", case)
        for case in cases
        if case.plan.overlap_expert and "qwen3-235b-a22b-h100" in case.case_id
    ]


def _of(case: TrainingCase) -> tuple[Setting, Plan]:
    return case.setting, case.plan


def predicted(case: Observation, slowdown: float) -> float:
    """What ``measured`` is predicted to be."""
    vars(generations.get("hopper"))["exchange_slowdown"] = slowdown

    def step(overlaps: bool) -> float:
        plan = case.plan.model_copy(update={"overlap_expert": overlaps})
        return float(simulate_plan(case.setting, plan).prediction.step.time[0])

    return step(False) / step(True) if case.pair else step(True)


def main() -> None:
    """Print effects and errors by slow-down, and fits."""
    used, listed = generations.get("hopper").exchange_slowdown, observations()
    values = np.array([[predicted(case, share) for share in SHARES] for case in listed])
    errors = np.log(values / np.array([[case.measured] for case in listed]))
    print("slow-down       " + " ".join(f"{share:6.2f}" for share in SHARES))
    for case, row, missed in zip(listed, values, errors, strict=True):
        begin, end = (
            (row - 1, f"  measured {case.measured - 1:+.1%}") if case.pair else (np.expm1(missed), "")
        )
        numbers = " ".join(f"{value:+6.1%}" for value in begin)
        print(f"{'effect' if case.pair else 'error of step':15} {numbers}  {case.source}{end}")
    misses, sources = np.abs(errors), np.array([case.source for case in listed])
    print("mean miss       " + " ".join(f"{value:6.1%}" for value in misses.mean(axis=0)))
    print(f"all sources: {SHARES[np.argmin(misses.mean(axis=0))]:.2f}; used {used}")
    for source in dict.fromkeys(sources.tolist()):
        best = int(np.argmin(misses[sources != source].mean(axis=0)))
        left = misses[sources == source, best].mean()
        print(f"without {source}: {SHARES[best]:.2f}, mean miss of that source {left:.1%}")


if __name__ == "__main__":
    main()
