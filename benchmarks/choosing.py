"""Whether predictions choose well, on published runs that differ only in their plan.

    python -m benchmarks.choosing RUNS.csv [MORE.csv ...] [--prefix BS- VTM-]

A family is one model, batch, number of GPUs, framework and precision with several measured plans. A plan that
was measured more than once counts once, with its mean.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from meshwright.validation.choices import families
from meshwright.validation.ledger import Entry, evaluate


def arguments():
    """Files, and the beginnings of the case names to look at."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--prefix", nargs="*", default=["BS-", "VTM-"])
    parser.add_argument("--fewest", type=int, default=3, help="plans below which a family is left out")
    return parser.parse_args()


def without_repeats(entries: list[Entry]) -> list[Entry]:
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


def report(title, found):
    """Print each family and their sum."""
    print(f"{title}: {sum(family.n for family in found)} plans in {len(found)} families")
    for family in found:
        figures = f"first choice {family.regret:+7.2%}  tau {family.tau:5.2f}"
        print(f"  {family.n:4d} plans  {figures}  {family.question}")
    if found:
        regret, plans = np.array([family.regret for family in found]), [family.n for family in found]
        tau = np.average([family.tau for family in found], weights=plans)
        print(
            f"  all: first choice mean {regret.mean():+.2%}, median {np.median(regret):+.2%}, "
            f"worst {regret.max():+.2%}; tau {tau:.2f} weighted by plans"
        )


def main():
    """Print the families of each prefix."""
    asked = arguments()
    entries = evaluate(asked.files).entries
    for prefix in asked.prefix or [""]:
        chosen = [entry for entry in entries if entry.case.case_id.startswith(prefix)]
        report(prefix or "all", families(without_repeats(chosen), asked.fewest))


if __name__ == "__main__":
    main()
