"""Whether predictions choose well among the measured plans of one question.

    python -m benchmarks.choosing RUNS.csv [MORE.csv ...] [--prefix BS- VTM- LUC-]

A question is one model, batch, number of GPUs, framework and precision with several measured plans; a plan
that was measured more than once counts once, with its mean. Beside Kendall's tau stands the tau that a
perfect prediction is expected to reach, given the spread of repeated measurements. Under a question stand
the pairs in the wrong order that differ by more than two such spreads. ``--collections`` prints one line
for each source instead: plans of its questions, loss of the first choice, tau, and the tau that repeated
runs allow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Annotated

import numpy as np

from evidence.command import command
from meshwright.validation.choices import MeasuredFamily, families
from meshwright.validation.ledger import PredictedCase, evaluate
from simulator.plan import Plan

APART = 2.0
"""Spreads of repeated measurements by which a pair in the wrong order is named."""
TAU, SHARE = 0.85, 0.95
"""Tau to reach, or the share of the tau that repeated runs allow."""
SCHEDULES = ("1f1b", "interleaved")
"""Schedules that the degrees of a plan say."""
NAMED = 3
"""Pairs in the wrong order that are printed for a question."""
FLOOR = 0.015
"""Standard deviation of a measured step, as a share, where a source repeats fewer than ``FEWEST_REPEATS``
plans: repeated runs of one configuration differ from their median by 1 to 2 % on average over the larger
collections of published runs."""
FEWEST_REPEATS = 3
"""Minimum number of repeated plans for a noise of the source's own."""


def repeat_noise(entries: Sequence[PredictedCase]) -> tuple[float, int]:
    """Spread of repeated measurements of one plan, and the number of plans that it is from.

    The spread is the pooled standard deviation of the logs of the times, a share of a step. A time that a
    source prints twice is one measurement. ``FLOOR`` where too few plans were repeated.
    """
    times: dict[tuple[str, str], set[float]] = {}
    for entry in entries:
        if entry.case.measured_step_s is not None:
            key = repr(entry.case.setting), repr(entry.case.plan)
            times.setdefault(key, set()).add(entry.case.measured_step_s)
    repeated = [np.log(sorted(values)) for values in times.values() if len(values) > 1]
    if len(repeated) < FEWEST_REPEATS:
        return FLOOR, len(repeated)
    squares = sum(float(np.sum((logs - logs.mean()) ** 2)) for logs in repeated)
    return float(np.sqrt(squares / sum(len(logs) - 1 for logs in repeated))), len(repeated)


def attainable_tau(measured: Sequence[float], noise: float) -> float:
    """Kendall's tau that a perfect prediction is expected to reach against noisy measurements.

    A pair whose true times differ by the log ``d`` is measured in the true order with the probability
    Phi(d / (sqrt(2) noise)), with normal errors. The measured differences stand for the true ones; noise
    widens them, so this is an upper bound.

    Args:
        measured: seconds of each plan.
        noise: standard deviation of the log of a measured time.
    """
    first, second = np.triu_indices(len(measured), 1)
    if not len(first):
        return 1.0
    logs = np.log(np.asarray(measured, dtype=float))
    apart = np.abs(logs[first] - logs[second]) / (np.sqrt(2.0) * max(noise, 1e-12))
    right = np.array([NormalDist().cdf(float(distance)) for distance in apart])
    return float(np.mean(2.0 * right - 1.0))


def described(plan: Plan) -> str:
    """A plan's degrees, micro batch and recomputation, and its schedule where its degrees do not say it."""
    words = [plan.describe(), f"micro {plan.micro_batch}"]
    if plan.recompute != "none":
        words.append(f"recompute {plan.recompute}")
    if plan.pipeline > 1 and plan.schedule not in SCHEDULES:
        words.append(plan.schedule)
    return ", ".join(words)


def report(title: str, groups: Sequence[MeasuredFamily], noise: float, repeats: int) -> None:
    """Print each question and their sum.

    Args:
        title: of the questions.
        found: the questions.
        noise: standard deviation of a measured time, as a share.
        repeats: plans that were measured more than once.
    """
    print(f"{title}: {sum(family.n for family in groups)} plans of {len(groups)} questions")
    print(f"  a repeated plan's times spread by {noise:.1%} ({repeats} plans repeated)")
    for family in groups:
        bound = attainable_tau(family.measured, noise)
        print(
            f"  {family.n:4d} plans  first choice {family.regret:+7.2%}  "
            f"tau {family.tau:5.2f} of {bound:4.2f}  {family.question}"
        )
        named = [pair for pair in family.wrong if pair.measured > APART * noise]
        for pair in named[:NAMED]:
            faster, slower = (described(side.case.plan) for side in (pair.faster, pair.slower))
            print(
                f"              wrong: {slower} is {pair.measured:.1%} slower than {faster}, "
                f"predicted {-pair.predicted:.1%} faster"
            )
        if len(named) > NAMED:
            print(f"              and {len(named) - NAMED} more pairs")
    if not groups:
        return
    regret, plans = np.array([family.regret for family in groups]), [family.n for family in groups]
    tau = np.average([family.tau for family in groups], weights=plans)
    bound = np.average([attainable_tau(family.measured, noise) for family in groups], weights=plans)
    print(
        f"  all: first choice mean {regret.mean():+.2%}, median {np.median(regret):+.2%}, "
        f"worst {regret.max():+.2%}; tau {tau:.2f} weighted by plans, at most {bound:.2f} with this noise"
    )


def ranking(entries: Sequence[PredictedCase], prefixes: Sequence[str], fewest: int) -> None:
    """Print the order of measured plans, for each beginning of case names."""
    for prefix in prefixes or [""]:
        selected = [entry for entry in entries if entry.case.case_id.startswith(prefix)]
        noise, repeats = repeat_noise(selected)
        report(prefix or "all", families(selected, fewest), noise, repeats)


def by_collection(entries: Sequence[PredictedCase], fewest: int) -> None:
    """Print the order of measured plans in one line for each source, and over all questions."""
    sources: dict[str, list[PredictedCase]] = {}
    for entry in entries:
        sources.setdefault(re.split(r"[-\d]", entry.case.case_id, maxsplit=1)[0], []).append(entry)
    print(f"{'source':12s} {'questions':>9s} {'plans':>6s} {'first choice':>12s} {'tau':>5s} {'at most':>7s}")
    rows = []
    for name, group in sources.items():
        noise, repeats = repeat_noise(group)
        measured = families(group, fewest)
        if not measured:
            continue
        plans = sum(family.n for family in measured)
        regret, tau, bound = summed(measured, noise)
        rows.append((len(measured), plans, regret, tau, bound))
        print(
            f"{name:12s} {len(measured):9d} {plans:6d} {regret:+12.2%} {tau:5.2f} {bound:7.2f}  "
            f"repeated runs spread by {noise:.1%} ({repeats} plans)"
        )
    questions, plans, regrets, taus, bounds = np.array(rows).T
    met = int(np.sum((taus >= TAU) | (taus >= SHARE * bounds)))
    print(
        f"all: {questions.sum():.0f} questions, {plans.sum():.0f} plans; first choice mean "
        f"{np.average(regrets, weights=questions):+.2%}; tau {np.average(taus, weights=plans):.2f} of at "
        f"most {np.average(bounds, weights=plans):.2f}; {met} of {len(rows)} sources reach {TAU:.2f} or "
        f"{SHARE:.0%} of what repeated runs allow"
    )


def summed(groups: Sequence[MeasuredFamily], noise: float) -> tuple[float, float, float]:
    """Mean loss of the first choice, and tau and its bound weighted by plans."""
    plans = [family.n for family in groups]
    bounds = [attainable_tau(family.measured, noise) for family in groups]
    taus = [family.tau for family in groups]
    regret = float(np.mean([family.regret for family in groups]))
    return regret, float(np.average(taus, weights=plans)), float(np.average(bounds, weights=plans))


@command
def main(
    files: Sequence[Path],
    *,
    prefix: Sequence[str] = ("BS-", "VTM-", "LUC-"),
    collections: Annotated[bool, "one line for each source"] = False,
    fewest: Annotated[int, "plans below which a question is left out"] = 3,
) -> None:
    """Print the order of measured plans."""
    entries = evaluate(files).entries
    if collections:
        by_collection(entries, fewest)
        return
    ranking(entries, prefix, fewest)
