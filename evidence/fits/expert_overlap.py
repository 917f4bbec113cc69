"""Overlap of the exchange with experts between nodes: the slow-down of kernels that published runs imply.

    python -m benchmarks.expert_overlap [RUNS.csv ...] [--generation blackwell]

Pairs show the effect of the overlap (steps without it over steps with it), rows the error of steps that have
it. The last lines fit the slow-down to all of them, and again without each source. On Hopper these are the
pairs and rows listed here; elsewhere all rows of the files and of those that ship, with one vote a source,
but for exchanges that the host posts: it launches nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from evidence.command import command
from evidence.training.parts import named, source_of, sources
from hwmodels.generation import generations
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.rows import published_files
from planner.training.prediction import simulate_plan
from simulator.plan import Plan
from simulator.setting import Setting

ALL_TO_ALL = "Megatron-Bridge pull request 3862 (all-to-all)"
HYBRID = "Megatron-Bridge pull requests 5094, 5123, 5225 (HybridEP)"
SHARES = np.arange(0.15, 0.801, 0.05)


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


def between_nodes(files: Sequence[Path], generation: str) -> list[Observation]:
    """Runs on devices of a generation that overlap an exchange which leaves its domain of links."""
    by_run: dict[tuple[object, ...], Observation] = {}
    for path in files:
        undecidable = named(path, sources().no_figure)
        for case in read_cases(path)[0]:
            cluster, plan, measured = case.setting.cluster, case.plan, case.measured_step_s
            if measured is None:
                continue
            stated = case.case_id not in undecidable and not case.is_guess
            leaves = plan.overlap_expert and plan.expert * plan.expert_tensor > cluster.domain
            library = case.setting.of(plan).choices.dispatcher_library
            posted = plan.dispatcher == "flex" and cluster.network.dispatcher(library).blocks_host
            if stated and leaves and not posted and cluster.device.generation.name == generation:
                source = source_of(case.case_id)
                key = case.setting.model.name, cluster.device.name, measured
                run = Observation(sources().same_as.get(source, source), measured, *_of(case), False)
                by_run.setdefault(key, run)
    return list(by_run.values())


def predicted(case: Observation, slowdown: float) -> float:
    """What ``measured`` is predicted to be."""
    vars(case.setting.cluster.device.generation)["exchange_slowdown"] = slowdown

    def step(overlaps: bool) -> float:
        plan = case.plan.model_copy(update={"overlap_expert": overlaps})
        return float(simulate_plan(case.setting, plan).prediction.step.time[0])

    return step(False) / step(True) if case.pair else step(True)


def misses_by_source(misses: np.ndarray, of: np.ndarray, votes: bool) -> np.ndarray:
    """Mean miss by slow-down: of all observations, or with one vote a source."""
    if not votes:
        return misses.mean(axis=0)
    return np.mean([misses[of == source].mean(axis=0) for source in dict.fromkeys(of.tolist())], axis=0)


@command
def main(files: Sequence[Path] = (), *, generation: Annotated[str, generations.names()] = "hopper") -> None:
    """Print effects and errors by slow-down, and fits."""
    hopper, used = generation == "hopper", generations.get(generation).exchange_slowdown
    files = [*files, *published_files()]
    listed = observations() if hopper else between_nodes(files, generation)
    values = np.array([[predicted(case, share) for share in SHARES] for case in listed])
    errors = np.log(values / np.array([[case.measured] for case in listed]))
    print("slow-down       " + " ".join(f"{share:6.2f}" for share in SHARES))
    for case, row, missed in zip(listed, values, errors, strict=True):
        begin, end = (
            (row - 1, f"  measured {case.measured - 1:+.1%}") if case.pair else (np.expm1(missed), "")
        )
        numbers = " ".join(f"{value:+6.1%}" for value in begin)
        print(f"{'effect' if case.pair else 'error of step':15} {numbers}  {case.source}{end}")
    misses, of = np.abs(errors), np.array([case.source for case in listed])
    means = misses_by_source(misses, of, not hopper)
    print("mean miss       " + " ".join(f"{value:6.1%}" for value in means))
    print(f"all sources: {SHARES[np.argmin(means)]:.2f}; used {used}")
    for source in dict.fromkeys(of.tolist()):
        others = of != source
        best = int(np.argmin(misses_by_source(misses[others], of[others], not hopper)))
        left = misses[~others, best].mean()
        print(f"without {source}: {SHARES[best]:.2f}, mean miss of that source {left:.1%}")
