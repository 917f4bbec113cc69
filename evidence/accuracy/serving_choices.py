"""Whether steady states choose well among measured serving plans of one model, GPU, engine and load.

    python -m benchmarks.serving_choices CLOSED_LOOP.csv.gz [--replay] [--wrong] [--leave-out model|engine]

A family is one model, GPU, engine version, formats and lengths with several plans (degrees), each measured at
several concurrencies. At the speeds of a user (1 / TPOT) that two plans or more reached, the plan predicted
to carry most tokens/s per GPU is compared with the one that did; between a plan's points, log throughput is
interpolated over log speed. Kendall's tau is that of predicted and measured throughput over pairs of plans.

Rows that measure one configuration again give the noise: the spread of log TPOT and log TTFT. All measured
rows are drawn again with it. ``noise allows`` is the tau between the measured and the redrawn order of the
same pairs; ``beyond noise`` counts only pairs whose order is the same in 95 % of the draws.

``--leave-out`` compares again with engine constants fitted on the other runs of the file's folder: on all of
them, and without those of the family's model (engine, all of its versions). Constants that no fit chose stay.
Losses and tau are printed by kind of pair: the class of the model and the degrees in which two plans differ.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np

from core.errors import InputError, MeshwrightError
from evidence.command import command
from evidence.fits import fit_engines, refitted
from evidence.serving import closed_loop
from evidence.serving.case import MeasuredRow
from meshwright.validation.rows import SkippedRow
from simulator.serving.engines.classes import layer_class

LENGTHS = ("isl_tokens", "osl_tokens")
SPEEDS = 5
"""Speeds of a user at which a family is compared, evenly spread in the log."""
FAMILY = ("engine", "engine_version", "model", "gpu", "weight_precision", "kv_precision", *LENGTHS)
PLAN = ("n_gpus", "tp", "pp", "dp", "ep", "moe_tp")
DRAWS, KEPT = 200, 0.95
"""Draws of the measured rows, and the share of them in which a pair beyond noise keeps its order."""


@dataclass
class Pairs:
    """Comparisons and pairs of plans at the speeds of one family, or of all."""

    regrets: list = field(default_factory=list)
    agree: list = field(default_factory=list)
    """Of each pair: 1 where its predicted order is the measured one, -1 where it is not."""
    redrawn: list = field(default_factory=list)
    """Of each pair: mean of the same over the draws of the measured rows."""
    wrong: list = field(default_factory=list)
    """Lines about pairs in the wrong order."""
    kinds: list = field(default_factory=list)
    """Of each pair: degrees that differ."""
    losses: list = field(default_factory=list)
    """Of each pair: share of throughput that the plan predicted to be better lacks to the better one."""

    def add(self, other, prefix=""):
        """Append those of another family; ``prefix`` goes before its kinds."""
        self.kinds.extend(f"{prefix}{kind}" for kind in other.kinds)
        for name in ("regrets", "agree", "redrawn", "wrong", "losses"):
            getattr(self, name).extend(getattr(other, name))

    @property
    def beyond(self):
        """Agreement of the pairs beyond noise."""
        return np.array(self.agree)[np.array(self.redrawn) >= 2 * KEPT - 1]


def read(path):
    """Cases of the file's unflagged aggregated rows, by family and plan."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    families = defaultdict(lambda: defaultdict(list))
    for values in csv.DictReader(io.StringIO(text)):
        if values["flag"] or values["mode"] != "agg" or not values["engine_version"]:
            continue
        row = MeasuredRow(values, str(path))
        try:
            case = closed_loop.read(row, path.name)
        except (SkippedRow, MeshwrightError):
            continue
        heads = "mtp" if case.question.speculates else ""
        families[(*map(row.text, FAMILY), heads)][tuple(map(row.text, PLAN))].append(case)
    return families


def latencies(figures):
    """TPOT and TTFT, ms; None where a row lacks one."""
    values = [figures.get(f"{name}_ms_mean") or figures.get(f"{name}_ms_p50") for name in ("tpot", "ttft")]
    return np.array(values) if all(values) else None


def noise(families):
    """Deviations of log TPOT and log TTFT of rows from the mean of their configuration, shape (rows, 2)."""
    ratios = []
    for plans in families.values():
        for cases in plans.values():
            groups = defaultdict(list)
            for case in cases:
                if (times := latencies(case.measured)) is not None:
                    groups[case.question.concurrency].append(np.log(times))
            for same in groups.values():
                if len(same) > 1:
                    ratios.append(
                        (np.array(same) - np.mean(same, axis=0)) * (len(same) / (len(same) - 1)) ** 0.5
                    )
    return np.concatenate(ratios)


def curve(cases, figures, shifts=None):
    """Log speed of a user and log tokens/s per GPU of one plan, by rising speed; repeats are averaged.

    Where a row states no throughput it follows from its latencies by Little's law.

    Args:
        cases: the plan's rows.
        figures: measured or predicted columns of each row.
        shifts: added to log TPOT and log TTFT of each row; none by default.
    """
    points = defaultdict(list)
    for i, (case, row) in enumerate(zip(cases, figures, strict=True)):
        times = latencies(row)
        if times is None:
            continue
        load, before = case.question, times
        if shifts is not None:
            times = times * np.exp(shifts[i])
        gpus = load.replicas * load.serving.pool.devices
        gaps = np.array([load.output - 1, 1.0])
        carried = (
            row.get("out_tok_s_per_gpu") or 1e3 * load.concurrency * load.output / (gaps @ before) / gpus
        )
        carried *= (gaps @ before) / (gaps @ times)
        points[load.concurrency].append((-np.log(times[0]), np.log(carried)))
    return np.array(sorted(tuple(np.mean(same, axis=0)) for same in points.values())).reshape(-1, 2)


def compare(plans, predict, spread, random):
    """Pairs of a family's plans; None where no two plans reach one speed.

    Args:
        plans: cases by plan.
        predict: predicted columns of questions that share a replica.
        spread: deviations of log TPOT and log TTFT between repeats.
        random: generator.
    """
    measured, predicted, redrawn = {}, {}, {}
    for plan, cases in plans.items():
        try:
            predictions = predict([case.question for case in cases])
        except MeshwrightError:
            continue
        columns = [case.measured for case in cases]
        measured[plan], predicted[plan] = curve(cases, columns), curve(cases, predictions)
        draws = spread[random.integers(len(spread), size=(DRAWS, len(cases)))]
        redrawn[plan] = [curve(cases, columns, draw) for draw in draws]
    usable = [plan for plan in measured if len(measured[plan]) >= 2 and len(predicted[plan]) >= 2]
    if len(usable) < 2:
        return None
    ends = sorted(end for plan in usable for end in (measured[plan][0, 0], measured[plan][-1, 0]))
    pairs = Pairs()
    for speed in np.linspace(ends[1], ends[-2], SPEEDS):
        reached = [plan for plan in usable if measured[plan][0, 0] <= speed <= measured[plan][-1, 0]]
        if len(reached) < 2:
            continue
        real = np.array([np.interp(speed, *measured[plan].T) for plan in reached])
        promised = np.array([_at(predicted[plan], speed) for plan in reached])
        again = np.array([[_at(points, speed) for points in redrawn[plan]] for plan in reached])
        pairs.regrets.append(1 - np.exp(real[np.argmax(promised)] - real.max()))
        for i, j in zip(*np.triu_indices(len(reached), 1), strict=True):
            sign = np.sign(real[i] - real[j])
            pairs.agree.append(sign * np.sign(promised[i] - promised[j]))
            pairs.redrawn.append(np.mean(sign * np.sign(again[i] - again[j])))
            pairs.kinds.append(difference(reached[i], reached[j]))
            pairs.losses.append(-np.expm1(-abs(real[i] - real[j])) * (pairs.agree[-1] < 0))
            if pairs.agree[-1] < 0:
                names = [
                    " ".join(f"{n}{v}" for n, v in zip(PLAN, reached[k], strict=True) if v) for k in (i, j)
                ]
                figures = f"measured {real[i] - real[j]:+.1%}, predicted {promised[i] - promised[j]:+.1%}"
                noisy = "" if pairs.redrawn[-1] >= 2 * KEPT - 1 else " (within noise)"
                pairs.wrong.append(
                    f"TPOT {np.exp(-speed):.2f} ms: {names[0]} over {names[1]}: {figures}{noisy}"
                )
    return pairs if pairs.regrets else None


def _at(points, speed):
    """Log throughput at a speed; beyond the plan's points on the line through the last two."""
    x, y = points.T
    if x[0] <= speed <= x[-1]:
        return np.interp(speed, x, y)
    first, last = (0, 1) if speed < x[0] else (-2, -1)
    slope = (y[last] - y[first]) / max(x[last] - x[first], 1e-9)
    return y[first] + slope * (speed - x[first])


def difference(plan, other):
    """Degrees in which two plans of equal or unequal numbers of GPUs differ."""
    degrees = [name for name, a, b in zip(PLAN, plan, other, strict=True) if a != b and name != "n_gpus"]
    return ", ".join(degrees) or "replicas"


def compared(families, predict, spread, constants=None, left=None, wrong=False, show=True):
    """Pairs of all families.

    Args:
        families: cases by family and plan.
        predict: predicted columns of questions that share a replica.
        spread: deviations of log TPOT and log TTFT between repeats.
        constants: by what their fit left out; those that ship by default.
        left: tells of a replica what its constants leave out, by default nothing.
        wrong: print pairs in the wrong order.
        show: print families.
    """
    random, total = np.random.default_rng(1), Pairs()
    for family, plans in sorted(families.items()):
        if len(plans) < 2:
            continue
        setups = [case.question.serving for cases in plans.values() for case in cases]
        if constants:
            refitted.assign(setups, constants[left(setups[0]) if left else refitted.NOTHING])
        pairs = compare(plans, predict, spread, random)
        if pairs is None:
            continue
        if show:
            print(
                f"{len(plans)} plans, first choice mean {np.mean(pairs.regrets):6.1%} worst "
                f"{max(pairs.regrets):6.1%}, tau {np.mean(pairs.agree):5.2f} (noise allows "
                f"{np.mean(pairs.redrawn):.2f}): {' '.join(filter(None, family))}",
                flush=True,
            )
        for line in pairs.wrong if wrong else ():
            print(f"    {line}")
        total.add(pairs, f"{layer_class(setups[0].model)}: ")
    return total


def summary(total):
    """One line of all families."""
    within = np.mean(np.array(total.regrets) <= 0.05)
    return (
        f"{len(total.regrets)} comparisons, first choice within 5 % of the best in {within:.0%}, mean "
        f"{np.mean(total.regrets):.1%} and median {np.median(total.regrets):.1%} below it; tau "
        f"{np.mean(total.agree):.2f} over {len(total.agree)} pairs; noise allows "
        f"{np.mean(total.redrawn):.2f}; beyond noise {np.mean(total.beyond):.2f} over "
        f"{len(total.beyond)} pairs"
    )


def by_kind(totals):
    """Lines of a table: mean loss and tau of pairs by kind.

    Args:
        totals: pairs by name of their constants.
    """
    yield f"| pairs | number | noise allows |{''.join(f' {name}: loss %, tau |' for name in totals)}"
    yield "|" + "---|" * (3 + len(totals))
    first = next(iter(totals.values()))
    for kind in (*sorted(set(first.kinds)), "all"):
        cells, same, redrawn = [], [], np.zeros(0)
        for pairs in totals.values():
            same = [i for i, name in enumerate(pairs.kinds) if kind in (name, "all")]
            losses, agree, redrawn = (np.array(x)[same] for x in (pairs.losses, pairs.agree, pairs.redrawn))
            cells.append(f"{100 * losses.mean():.1f}, {agree.mean():.2f}")
        yield f"| {kind} | {len(same)} | {redrawn.mean():.2f} | " + " | ".join(cells) + " |"


@command
def main(
    file: Path,
    *,
    replay: Annotated[bool, "predict with the event engine"] = False,
    wrong: Annotated[bool, "list the pairs in the wrong order"] = False,
    leave_out: Annotated[Sequence[str], ("model", "engine"), "what to fit without"] = (),
    fits: Annotated[Path | None, "keeps the fits for another run"] = None,
) -> None:
    """Print every family and the sum."""
    if replay and leave_out:
        raise InputError("compares steady states", "--leave-out")
    families = read(file)
    spread = noise(families)
    low, high = (np.std(spread, axis=0), np.median(np.abs(spread), axis=0))
    print(
        f"noise: {len(spread)} repeated rows, standard deviation of TPOT {low[0]:.1%} and TTFT {low[1]:.1%}, "
        f"median deviation {high[0]:.1%} and {high[1]:.1%}"
    )
    predict = closed_loop.predict if replay else closed_loop.predict_steady
    totals = {"shipped": compared(families, predict, spread, wrong=wrong)}
    print(f"all: {summary(totals['shipped'])}", flush=True)
    refits = refitted.constants([file.parent], fits) if leave_out else {}
    fit_engines.fresh_tables()
    for what in leave_out:
        for name, left in (("fitted on all", None), (f"without the {what}", refitted.LEFT[what])):
            if name not in totals:
                totals[name] = compared(families, predict, spread, refits[what], left, wrong, show=False)
                print(f"{name}: {summary(totals[name])}", flush=True)
    print("\n".join(by_kind(totals)))
