"""How predictions of measured runs fare by what other sources measured.

    python -m benchmarks.measured_near

Each configuration of measured_runs.csv is judged as a plan would be, by the runs of other sources on
its code base, device family and kind of model. Printed by class: runs, sources, mean and median of measured
over predicted step less 1, median and 90th percentile of its size, and the share that took far longer than
predicted. Below it the same for plans that promise more than the fastest near run of another source, and for
the others; of configurations with one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import get_args

import numpy as np

from evidence.command import command
from planner.training.measured_runs import LARGEST_NODE, MeasuredRun, code_base, far, is_near, measured_runs
from simulator.workload import Precision

Found = dict[str, list[tuple[str, float]]]
"""Sources and errors by class."""


def place(run: MeasuredRun) -> tuple[object, ...]:
    """What a run and its evidence have in common."""
    return run.generation, run.domain > LARGEST_NODE, run.experts, code_base(run.framework)


def number_format(run: MeasuredRun) -> frozenset[str]:
    """The number format among the mechanisms of a run."""
    return run.mechanisms & {"16 bits", *get_args(Precision)}


def measured_by_others(run: MeasuredRun, others: list[MeasuredRun]) -> str:
    """What others measured of a run's mechanisms."""
    if not others:
        return "no run of the code base on the family"
    used = frozenset().union(*(each.mechanisms for each in others))
    if not run.mechanisms <= used:
        return "a mechanism without a run"
    pairs = {pair for each in others for pair in combinations(sorted(each.mechanisms), 2)}
    apart = any(pair not in pairs for pair in combinations(sorted(run.mechanisms), 2))
    return "two mechanisms without a common run" if apart else "any two mechanisms in a common run"


def promised(run: MeasuredRun, others: list[MeasuredRun]) -> str:
    """What a run's prediction promises beside the fastest near run of others."""
    neighbours = [each for each in others if number_format(each) == number_format(run)]
    widths = run.hidden, run.feed_forward
    if not all(widths):
        return ""
    fastest = max((each.utilisation for each in neighbours if is_near(each, widths)), default=0.0)
    if not fastest:
        return ""
    gain = run.utilisation * (1 + run.errors[0]) / fastest - 1
    return f"over {far():.0%} beyond the fastest near run" if gain > far() else "not so far beyond it"


def lines(groups: Found) -> Iterator[str]:
    """One line a class."""
    for name, rows in groups.items():
        errors = np.array([error for _, error in rows])
        size = np.abs(errors)
        yield (
            f"  {name:42s} {len(rows):5d} {len({source for source, _ in rows}):7d} {errors.mean():+7.1%} "
            f"{np.median(errors):+7.1%} {np.median(size):6.1%} {np.quantile(size, 0.9):6.1%} "
            f"{np.mean(errors > far()):6.1%}"
        )


@command
def main() -> None:
    """Print both tables, for dense models and for those with experts."""
    runs = [run for run in measured_runs() if run.errors]
    columns = ("runs", 5), ("sources", 7), ("mean", 7), ("median", 7), ("size", 6), ("90 %", 6), ("late", 6)
    head = f"  {'':42s} " + " ".join(name.rjust(width) for name, width in columns)
    for experts in (False, True):
        by_evidence: Found = defaultdict(list)
        by_promise: Found = defaultdict(list)
        for run in runs:
            if run.experts != experts:
                continue
            others = [each for each in runs if each.source != run.source and place(each) == place(run)]
            by_evidence[measured_by_others(run, others)] += [(run.source, error) for error in run.errors]
            if len(run.errors) == 1 and (name := promised(run, others)):
                by_promise[name].append((run.source, run.errors[0]))
        print("models with experts" if experts else "dense models")
        print(head)
        for grouping in (by_evidence, by_promise):
            print("\n".join(lines(dict(sorted(grouping.items())))))
