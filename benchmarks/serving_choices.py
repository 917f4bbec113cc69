"""Whether steady states choose well among measured serving plans of one model, GPU, engine and load.

    python -m benchmarks.serving_choices CLOSED_LOOP.csv.gz

A family is one model, GPU, engine version, formats and lengths with several plans (degrees), each measured at
several concurrencies. At the speeds of a user (1 / TPOT) that two plans or more reached, the plan predicted
to carry most tokens/s per GPU is compared with the one that did; between a plan's points, log throughput is
interpolated over log speed. Kendall's tau is that of predicted and measured throughput over pairs of plans.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections import defaultdict
from pathlib import Path

import numpy as np

from hwmodels.errors import MeshwrightError
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving import closed_loop
from meshwright.validation.serving.case import MeasuredRow

LENGTHS = ("isl_tokens", "osl_tokens")
SPEEDS = 5
"""Speeds of a user at which a family is compared, evenly spread in the log."""
FAMILY = ("engine", "engine_version", "model", "gpu", "weight_precision", "kv_precision", "spec", *LENGTHS)
PLAN = ("n_gpus", "tp", "pp", "dp", "ep", "moe_tp")


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
        families[tuple(map(row.text, FAMILY))][tuple(map(row.text, PLAN))].append(case)
    return families


def curve(cases, figures):
    """Log speed of a user and log tokens/s per GPU of one plan, by rising speed; repeated points once.

    Where a row states no throughput it follows from its latencies by Little's law.
    """
    points = {}
    for case, found in zip(cases, figures, strict=True):
        one = case.question
        tpot, ttft = (
            found.get(f"{name}_ms_mean") or found.get(f"{name}_ms_p50") for name in ("tpot", "ttft")
        )
        if tpot and ttft:
            lifetime = 1e-3 * (ttft + tpot * (one.output - 1))
            gpus = one.replicas * one.serving.pool.devices
            carried = found.get("out_tok_s_per_gpu") or one.concurrency * one.output / lifetime / gpus
            points.setdefault(one.concurrency, (-np.log(tpot), np.log(carried)))
    return np.array(sorted(points.values())).reshape(-1, 2)


def compare(plans):
    """Regret of the first choice at each speed, and concordant minus discordant pairs with their number."""
    measured, predicted = {}, {}
    for plan, cases in plans.items():
        try:
            found = closed_loop.predict_steady([case.question for case in cases])
        except MeshwrightError:
            continue
        measured[plan] = curve(cases, [case.measured for case in cases])
        predicted[plan] = curve(cases, found)
    usable = [plan for plan in measured if len(measured[plan]) >= 2 and len(predicted[plan]) >= 2]
    if len(usable) < 2:
        return None
    ends = sorted(end for plan in usable for end in (measured[plan][0, 0], measured[plan][-1, 0]))
    regrets, agree, pairs = [], 0, 0
    for speed in np.linspace(ends[1], ends[-2], SPEEDS):
        reached = [plan for plan in usable if measured[plan][0, 0] <= speed <= measured[plan][-1, 0]]
        if len(reached) < 2:
            continue
        real = np.array([np.interp(speed, *measured[plan].T) for plan in reached])
        told = np.array([_at(predicted[plan], speed) for plan in reached])
        regrets.append(1 - np.exp(real[np.argmax(told)] - real.max()))
        signs = np.sign(np.subtract.outer(real, real)) * np.sign(np.subtract.outer(told, told))
        agree += signs[np.triu_indices(len(reached), 1)].sum()
        pairs += len(reached) * (len(reached) - 1) // 2
    return (regrets, agree, pairs) if regrets else None


def _at(points, speed):
    """Log throughput at a speed; beyond the plan's points on the line through the last two."""
    x, y = points.T
    if x[0] <= speed <= x[-1]:
        return np.interp(speed, x, y)
    first, last = (0, 1) if speed < x[0] else (-2, -1)
    slope = (y[last] - y[first]) / max(x[last] - x[first], 1e-9)
    return y[first] + slope * (speed - x[first])


def main():
    """Print every family and the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    regrets, agree, pairs = [], 0, 0
    for family, plans in sorted(read(parser.parse_args().file).items()):
        found = compare(plans) if len(plans) > 1 else None
        if found is None:
            continue
        print(
            f"{len(plans)} plans, first choice mean {np.mean(found[0]):6.1%} worst {max(found[0]):6.1%}, "
            f"tau {found[1] / found[2]:5.2f}: {' '.join(filter(None, family))}",
            flush=True,
        )
        regrets += found[0]
        agree, pairs = agree + found[1], pairs + found[2]
    within = np.mean(np.array(regrets) <= 0.05)
    print(
        f"all: {len(regrets)} comparisons, first choice within 5 % of the best in {within:.0%}, mean "
        f"{np.mean(regrets):.1%} and median {np.median(regrets):.1%} below it; tau {agree / pairs:.2f} over "
        f"{pairs} pairs"
    )


if __name__ == "__main__":
    main()
