"""How much a few measured steps improve the prediction of the rest of a family.

    python -m benchmarks.learning RUNS.csv [MORE.csv ...] [--draws 20] [--shown 3] [--seed 1]
    python -m benchmarks.learning --servers FILE [--draws 1] [--every N] [--fit]   (`learned_servers`)

A family is a source, framework, device and kind of number format (16 bits, fewer) with at least twice as
many measured plans as are shown. ``SHOWN`` rows are drawn, ``learn`` sees them, the rest is predicted.
Errors are means of the sizes of the errors of the rest, over all draws; rows with an assumed micro batch are
left out. Three bounds stand beside them: each row predicted from all others of its family, all rows from
themselves, which no number of shown rows can pass by much, and all rows under one factor, the median of their
errors: what is then left is scatter among the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from evidence.accuracy.learned_servers import show_fit, show_servers
from evidence.command import command
from meshwright.validation.cases import TrainingCase, read_cases
from simulator.plan import Plans
from simulator.schedules import schedules
from simulator.setting import Setting
from simulator.site import Site
from simulator.training import step_time
from simulator.uncertainty.learning import MeasuredStep, learn_site

DRAWS = 20
HIGH_ERROR = 0.05
SIXTEEN_BITS = ("fp16", "bf16")


@dataclass
class Family:
    """Measured steps of one source, framework and device."""

    name: str
    steps: list[MeasuredStep]

    def errors(self, numbers: Sequence[int], site: Site | None) -> np.ndarray:
        """Predicted over measured less 1 of some steps, shape (steps,)."""
        ratios = []
        for index in numbers:
            step = self.steps[index]
            setting: Setting = replace(step.setting, site=site)
            ratios.append(float(step_time(setting, Plans.of(step.plan))[0]) / step.seconds - 1)
        return np.array(ratios)


def families(cases: Sequence[TrainingCase], least: int) -> list[Family]:
    """Families with enough rows, the largest first."""
    groups: dict[str, dict[str, MeasuredStep]] = {}
    for case in cases:
        if not case.measured_step_s or "micro batch" in case.assumed:
            continue
        if not schedules[case.plan.schedule].has_closed_form:
            continue
        source = re.split(r"[-\d]", case.case_id, maxsplit=1)[0]
        device, framework = case.setting.cluster.device.name, case.setting.framework.name
        width = "16 bits" if case.precision in SIXTEEN_BITS else "8 and 4 bits"
        name = f"{source}, {framework} on {device}, {width}"
        step = MeasuredStep(case.case_id, case.setting, case.plan, case.measured_step_s)
        groups.setdefault(name, {})[case.case_id] = step
    long_enough = [
        Family(name, list(steps.values())) for name, steps in groups.items() if len(steps) >= least
    ]
    return sorted(long_enough, key=lambda family: -len(family.steps))


def judged(family: Family, draws: int, visible: int, seed: int) -> tuple[float, float]:
    """Mean size of the errors of rows not shown, before and after, over all draws."""
    draw = np.random.default_rng(seed)
    plain = np.abs(family.errors(range(len(family.steps)), None))
    before, after = [], []
    for _ in range(draws):
        drawn = draw.choice(len(family.steps), visible, replace=False)
        rest = np.setdiff1d(np.arange(len(family.steps)), drawn).tolist()
        site = learn_site([family.steps[index] for index in drawn]).site
        before.append(plain[rest].mean())
        after.append(np.abs(family.errors(rest, site)).mean())
    return float(np.mean(before)), float(np.mean(after))


def bounded(family: Family) -> tuple[float, float, float]:
    """Mean sizes of errors over those before: from all other rows, from all rows, and scatter."""
    site = learn_site(family.steps)
    common = (1 + site.before) / np.median(1 + site.before) - 1
    left_out, after, scatter = (
        float(np.abs(errors).mean() / np.abs(site.before).mean())
        for errors in (site.left_out, site.after, common)
    )
    return left_out, after, scatter


@command
def main(
    files: Sequence[Path] = (),
    *,
    servers: Annotated[Path | None, "measured servers instead: a file of closed loops"] = None,
    fit: Annotated[bool, "fit the spreads of servers' errors"] = False,
    draws: Annotated[int | None, "default: 20 of rows; 1 of servers, whose runs take long"] = None,
    every: Annotated[int, "one of so many servers"] = 1,
    shown_: int = 3,
    seed: int = 1,
    only: Annotated[str, "families whose name matches this pattern"] = "",
) -> None:
    """Print the errors of every family before and after."""
    if servers is not None:
        if fit:
            show_fit(servers)
        else:
            show_servers(servers, draws or 1, seed, every)
        return
    draws = draws or DRAWS
    cases = [case for path in files for case in read_cases(path)[0]]
    ratios, worse, bounds = [], [], []
    print(f"{shown_} rows shown, {draws} draws; mean error of the rest")
    heads = f"{'before':>8s} {'after':>8s} {'ratio':>6s} {'others':>7s} {'all':>6s} {'factor':>6s}"
    print(f"{'family':58s} {'rows':>5s} {heads}")
    for family in families(cases, 2 * shown_):
        if not re.search(only, family.name):
            continue
        before, after = judged(family, draws, shown_, seed)
        bound = bounded(family)
        limits = " ".join(f"{figure:{width}.2f}" for figure, width in zip(bound, (7, 6, 6), strict=True))
        line = f"{before:8.1%} {after:8.1%} {after / before:6.2f} {limits}"
        print(f"{family.name:58s} {len(family.steps):5d} {line}")
        if before > HIGH_ERROR:
            ratios.append(after / before)
            bounds.append(bound)
        else:
            worse.append(after - before)
    if ratios:
        print(f"{len(ratios)} families above {HIGH_ERROR:.0%}: median ratio {np.median(ratios):.2f}")
        others, all_rows, factor = np.median(bounds, axis=0)
        print(f"with all other rows shown {others:.2f}, with all rows shown {all_rows:.2f}", end="; ")
        print(f"under one common factor {factor:.2f}")
    if worse:
        print(f"{len(worse)} others: worst change {100 * max(worse):+.1f} points")
