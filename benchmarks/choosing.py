"""Whether predictions choose well, on published runs that differ only in their plan.

    python -m benchmarks.choosing RUNS.csv [MORE.csv ...] [--prefix BS- VTM- LUC-]

A family is one model, batch, number of GPUs, framework and precision with several measured plans. A plan that
was measured more than once counts once, with its mean.

Under each family stands the best plan that a search of the same question finds, its predicted gain over
the best measured plan, and the parts of the step that the gain rests on, as shares of the measured plan's
step. The search keeps what the family's runs share (schedule, recomputation, sharding, overlap): ``--free``
lets it choose those too, ``--no-search`` leaves it out.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from hwmodels.errors import MeshwrightError
from meshwright.validation.choices import families
from meshwright.validation.ledger import PredictedCase, evaluate
from planner.constraints import Constraints
from planner.search import search
from simulator.plan import Plans
from simulator.training import Step, predict

HELD = (
    "schedule",
    "recompute",
    "sequence_parallel",
    "context",
    "zero",
    "overlap_gradients",
    "overlap_parameters",
    "overlap_tensor",
    "overlap_pipeline",
)
"""Fields of a plan that a search keeps where all measured plans of a family share them."""
LEAST_SHARE = 0.005
"""Parts that differ by less than this share of the step are not named."""


def arguments():
    """Files, and the beginnings of the case names to look at."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--prefix", nargs="*", default=["BS-", "VTM-", "LUC-"])
    parser.add_argument("--fewest", type=int, default=3, help="plans below which a family is left out")
    parser.add_argument(
        "--free", action="store_true", help="let the search choose what the measured plans share"
    )
    parser.add_argument("--no-search", action="store_true", help="do not search for better plans")
    return parser.parse_args()


def without_repeats(entries: list[PredictedCase]) -> list[PredictedCase]:
    """One entry for each plan of each question, with the mean of its measured times."""
    groups = defaultdict(list)
    for entry in entries:
        if entry.case.measured_step_s is not None:
            groups[repr(entry.case.setting), repr(entry.case.plan)].append(entry)
    once = []
    for group in groups.values():
        mean = float(np.mean([entry.case.measured_step_s for entry in group]))
        once.append(replace(group[0], case=replace(group[0].case, measured_step_s=mean)))
    return once


def report(title, found, searched):
    """Print each family and their sum.

    Args:
        title: of the families.
        found: the families.
        searched: lines about the best plan that a search finds, by the question.
    """
    print(f"{title}: {sum(family.n for family in found)} plans in {len(found)} families")
    for family in found:
        figures = f"first choice {family.regret:+7.2%}  tau {family.tau:5.2f}"
        print(f"  {family.n:4d} plans  {figures}  {family.question}")
        for line in searched.get(family.setting, ()):
            print(f"              {line}")
    if found:
        regret, plans = np.array([family.regret for family in found]), [family.n for family in found]
        tau = np.average([family.tau for family in found], weights=plans)
        print(
            f"  all: first choice mean {regret.mean():+.2%}, median {np.median(regret):+.2%}, "
            f"worst {regret.max():+.2%}; tau {tau:.2f} weighted by plans"
        )


def better_plans(entries: list[PredictedCase], fewest: int, free: bool) -> dict[str, list[str]]:
    """The best plan of a search beside the best measured one, for each family; by its setting."""
    groups: dict[str, list[PredictedCase]] = defaultdict(list)
    for entry in entries:
        groups[repr(entry.case.setting)].append(entry)
    lines = {}
    for setting, group in groups.items():
        if len({repr(entry.case.plan) for entry in group}) >= fewest:
            print(f"searching {group[0].case.case_id} ...", file=sys.stderr)
            lines[setting] = _compared(group, free)
    return lines


def _compared(group: list[PredictedCase], free: bool) -> list[str]:
    best = min(group, key=lambda entry: entry.case.measured_step_s or 0.0)
    measured = best.case.measured_step_s or 0.0
    setting, plan = best.case.setting, best.case.plan
    shared = {name: {getattr(entry.case.plan, name) for entry in group} for name in HELD}
    fixed = {} if free else {name: values.pop() for name, values in shared.items() if len(values) == 1}
    try:
        result = search(setting, setting.cluster.devices, Constraints(fixed=fixed), top=1)
    except MeshwrightError as error:
        return [f"no search: {error}"]
    if not len(result.plans):
        return ["no plan is predicted to fit"]
    published, ours = (predict(setting, Plans.of(each)) for each in (plan, result.plans.plan(0)))
    gain = float(published.time[0] / ours.time[0] - 1)
    return [
        f"best measured {plan.describe()}: {measured:.1f} s, predicted {published.time[0]:.1f} s",
        f"best found    {result.plans.plan(0).describe()}: {ours.time[0]:.1f} s, {gain:+.1%} of speed",
        f"rests on      {_rests_on(published, ours)}",
    ]


def _rests_on(published: Step, ours: Step) -> str:
    """Parts of the step by which two plans differ, the largest first, as shares of the first one's step."""
    total = float(published.time[0])
    parts = {
        name: float(seconds[0] - ours.seconds[name][0]) / total for name, seconds in published.seconds.items()
    }
    named = sorted(
        (part for part in parts.items() if abs(part[1]) >= LEAST_SHARE), key=lambda part: -abs(part[1])
    )
    return ", ".join(f"{name} {-share:+.1%}" for name, share in named) or "nothing: the same step"


def main():
    """Print the families of each prefix."""
    asked = arguments()
    entries = evaluate(asked.files).entries
    for prefix in asked.prefix or [""]:
        chosen = without_repeats([entry for entry in entries if entry.case.case_id.startswith(prefix)])
        searched = {} if asked.no_search else better_plans(chosen, asked.fewest, asked.free)
        report(prefix or "all", families(chosen, asked.fewest), searched)


if __name__ == "__main__":
    main()
