"""``mw.learn``: what a user's measured steps say about kernels, links, host and memory of their machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwmodels.errors import InputError
from hwmodels.files import write_text
from meshwright.shown import Shown
from meshwright.training_logs import SUFFIXES, read_log
from meshwright.validation.cases import TrainingCase, read_cases
from simulator.schedules import schedules
from simulator.site import Site
from simulator.uncertainty.learning import CONTRADICTS, Learned, MeasuredStep, learn_site

MOST_APART = 1.5
"""Measured times of one plan further apart than this factor cannot both be right."""
TWICE = 0.2
"""Relative gap between two measured times of one plan from which on they contradict each other."""


@dataclass(frozen=True, eq=False, repr=False)
class Learning(Shown):
    """Factors learned from measured steps, and what they do to the predictions of these steps.

    Attributes:
        site: the factors; ``save`` writes them as a site file.
        learned: errors before, after, and with each run left out.
        steps: the runs.
        skipped: rows without a step time or with an incomplete configuration, and the reasons.
        contradictions: runs that contradict each other or all others, in words.
        warnings: runs that are predicted not to fit.
    """

    site: Site
    learned: Learned
    steps: Sequence[MeasuredStep]
    skipped: Sequence[tuple[str, str]]
    contradictions: Sequence[str]
    warnings: Sequence[str]

    def save(self, path: str | Path) -> Path:
        """Write the site file.

        Raises:
            InputError: the file cannot be written.
        """
        import yaml

        data = self.site.model_dump(mode="json", exclude_none=True)
        write_text(Path(path), yaml.safe_dump(data, sort_keys=False, width=110))
        return Path(path)

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.learning import learned_tables

        return learned_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """The output of ``meshwright learn --json``."""
        from meshwright.reports.learning import describe_learning

        return describe_learning(self)


def learn(runs: str | Path | Sequence[str | Path]) -> Learning:
    """Learn a site's factors from measured steps.

    Args:
        runs: CSV files with the columns of ``validate --cases``, and logs of Megatron-LM or torchtitan with
            their scenario beside them (``meshwright.training_logs``); all of one device and framework.

    Raises:
        InputError: unreadable, no usable row or line, several devices or frameworks, or times of one plan
            that cannot both be right.
    """
    files = [Path(runs)] if isinstance(runs, str | Path) else [Path(path) for path in runs]
    cases: list[TrainingCase] = []
    skipped: list[tuple[str, str]] = []
    steps = [read_log(path) for path in files if path.suffix in SUFFIXES]
    for path in files:
        if path.suffix in SUFFIXES:
            continue
        found, left_out = read_cases(path)
        cases += found
        skipped += left_out
    where = ", ".join(map(str, files))
    for case in cases:
        if case.measured_step_s is None:
            skipped.append((case.case_id, "no measured step time"))
        elif not schedules[case.plan.schedule].has_closed_form:
            skipped.append((case.case_id, f"the schedule {case.plan.schedule} has no closed form"))
        else:
            steps.append(_step(case, case.measured_step_s))
    if not steps:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:3])
        raise InputError(f"no row to learn from{reasons and f' ({reasons})'}", where)
    _one_place(steps, where)
    found = learn_site(steps, where)
    return Learning(
        found.site, found, steps, skipped, _contradictions(steps, found, where), _too_large(steps)
    )


def _step(case: TrainingCase, seconds: float) -> MeasuredStep:
    return MeasuredStep(case.case_id, case.setting, case.plan, seconds, case.measured_peak_bytes)


def _one_place(steps: Sequence[MeasuredStep], where: str) -> None:
    """Refuse runs of several devices or frameworks, whose factors differ."""
    places = {
        "devices": sorted({step.setting.cluster.device.name for step in steps}),
        "frameworks": sorted({step.setting.framework.name for step in steps}),
    }
    for kind, names in places.items():
        if len(names) > 1:
            raise InputError(f"holds runs of several {kind}: {', '.join(names)}; learn each apart", where)


def _contradictions(steps: Sequence[MeasuredStep], found: Learned, where: str) -> list[str]:
    """Runs of one plan with different times, and runs that no other run makes plausible.

    Raises:
        InputError: times of one plan that cannot both be right.
    """
    words = []
    plans: dict[tuple[str, str], list[MeasuredStep]] = {}
    for step in steps:
        plans.setdefault((repr(step.setting), repr(step.plan)), []).append(step)
    for same in plans.values():
        low, high = (pick(same, key=lambda step: step.seconds) for pick in (min, max))
        told = f"{low.name} ({low.seconds:.4g} s) and {high.name} ({high.seconds:.4g} s) are of one plan"
        if high.seconds > MOST_APART * low.seconds:
            raise InputError(f"{told}: they cannot both be right; leave one out", where)
        if high.seconds > (1 + TWICE) * low.seconds:
            words.append(told)
    words += [
        f"{step.name} lies {abs(value):.1f} standard deviations from what the other runs say"
        for step, value in zip(steps, found.surprise.tolist(), strict=True)
        if abs(value) > CONTRADICTS
    ]
    return words


def _too_large(steps: Sequence[MeasuredStep]) -> list[str]:
    """Runs that are predicted not to fit."""
    from planner.prediction import Prediction

    words = []
    for step in steps:
        peak = float(Prediction.of(step.setting, step.plan).memory.peak[0])
        capacity = step.setting.cluster.device.memory_bytes
        if peak > capacity:
            words.append(
                f"{step.name} is predicted to need {peak / 2**30:.1f} GiB of {capacity / 2**30:.1f} GiB; its "
                "step time counts, and peak_memory_gib would correct the memory"
            )
    return words
