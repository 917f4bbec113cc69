"""Fit the constants of links inside a node to measured collectives, and write them as YAML.

    python -m benchmarks.fit_collectives COLLECTIVES.csv[.gz] LINKS.csv -o hwmodels/collectives/links

COLLECTIVES.csv has the columns system, op, dtype, n_gpus, n_nodes, bytes, time_us, source; LINKS.csv has
system, op, n_gpus, n_nodes, bytes, value, unit. Groups of 2 and 8 are fitted, and groups of 4 over PCIe,
whose two levels no formula joins: give those every other size. Robust least squares on the logarithm of time,
from several starts, with weak priors at the latencies that NCCL's own tuner assumes for NVLink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares

from evidence.command import command
from evidence.fits.collectives import MeasuredCollective, read_rows
from hwmodels.collectives import seconds
from hwmodels.collectives.call import CollectiveCalls, LinkCosts, Switch

Floats = NDArray[np.float64]

ORDER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive", "in_switch")

# start (us) and step (us) of LL, LL128 and Simple: NCCL 2.27 src/graph/tuning.cc; efficiencies are ours.
PRIOR = np.log([6.6, 14.0, 8.4, 0.6, 1.9, 3.4, 0.05, 0.45, 0.8, 0.3])
LOW = np.log([1.5, 2.0, 4.0, 0.02, 0.02, 0.02, 0.003, 0.05, 0.05, 1e-3])
HIGH = np.log([30.0, 60.0, 200.0, 1.5, 2.5, 3.4, 0.6, 0.9, 0.98, 1.5])
SWITCH_PRIOR, SWITCH_LOW, SWITCH_HIGH = np.log([60.0, 0.65]), np.log([5.0, 0.3]), np.log([300.0, 1.0])
PRIOR_WEIGHT = 0.05
"""Of one e-fold away from the prior, where a point's residual counts 1 per e-fold."""


@dataclass(frozen=True)
class FittedLink:
    """One calibration to fit: which systems it rests on."""

    name: str
    systems: tuple[str, ...]
    bandwidth: float
    provenance: str
    published: tuple[str, ...] = ()
    """Systems of which only large messages are used: their small ones were timed in another way."""
    published_from: float = 64 * 2**20
    switch_from: int | None = None
    mesh: int = 0
    """Devices of a full mesh, of which a smaller group uses fewer links."""
    sizes: tuple[int, ...] = (2, 5, 6, 7, 8)
    """Groups to fit."""


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _links() -> list[FittedLink]:
    data = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return [FittedLink(name, **{key: _frozen(keys[key]) for key in keys}) for name, keys in data.items()]


LINKS = _links()


def predict(theta: Floats, link: FittedLink, operation: str, rows: dict[str, Floats]) -> Floats:
    """Return times, s, of groups inside one node."""
    column, size = np.exp(theta)[:, np.newaxis], rows["size"]
    bandwidth = link.bandwidth * ((size - 1) / (link.mesh - 1) if link.mesh else 1.0)
    alone, none = np.ones(size.shape), np.zeros(size.shape)
    lanes = LinkCosts(column[0:3] * 1e-6, column[3:6] * 1e-6, 1 / (column[6:9] * bandwidth), column[9], none)
    switch = None
    if len(theta) > 10:
        usable = (rows["switched"] > 0) & (size >= (link.switch_from or 2))
        start = np.where(usable, column[10] * 1e-6, np.inf)
        switch = Switch(start, 1 / (link.bandwidth * column[11]))
    return seconds(CollectiveCalls(operation, rows["bytes"], size, alone, alone, lanes, switch=switch))


def fit(link: FittedLink, operation: str, rows: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Return the constants' logarithms and the relative errors left."""
    switch = link.switch_from is not None and operation == "all_reduce"
    prior = np.concatenate([PRIOR, SWITCH_PRIOR]) if switch else PRIOR
    low = np.concatenate([LOW, SWITCH_LOW]) if switch else LOW
    high = np.concatenate([HIGH, SWITCH_HIGH]) if switch else HIGH

    def residuals(theta: Floats) -> Floats:
        time = predict(theta, link, operation, rows)
        return np.concatenate([np.log(time / rows["time"]), PRIOR_WEIGHT * (theta - prior)])

    random = np.random.default_rng(0)
    starts = [np.clip(prior + random.normal(0, 0.4, len(prior)), low + 1e-3, high - 1e-3) for _ in range(6)]
    fits = [least_squares(residuals, x, loss="soft_l1", f_scale=0.05, bounds=(low, high)) for x in starts]
    best = min(fits, key=lambda f: f.cost)
    return best.x, np.exp(residuals(best.x)[: len(rows["time"])]) - 1


def constants(theta: Floats) -> dict[str, object]:
    """Return one family's constants as they stand in the YAML."""
    start, step, efficiency = np.exp(theta[0:3]) * 1e-6, np.exp(theta[3:6]) * 1e-6, np.exp(theta[6:9])
    names = ("ll", "ll128", "simple")
    protocols = {
        name: {
            "start_s": rounded(float(start[i])),
            "step_s": rounded(float(step[i])),
            "efficiency": rounded(float(efficiency[i])),
        }
        for name, i in zip(names, np.argsort(efficiency), strict=True)
    }
    return {**protocols, "own_copy": rounded(np.exp(theta[9]))}


def rounded(value: float) -> float:
    """Keep three significant digits."""
    return float(f"{value:.3g}")


def arrays(link: FittedLink, family: str, rows: list[MeasuredCollective]) -> dict[str, Floats]:
    """Return the rows that a family of a link is fitted to."""
    selected = [
        row
        for row in rows
        if row.nodes == 1 and row.size in link.sizes and row.operation == family and used(link, row)
    ]
    return {
        "size": np.array([2 if row.operation == "send_receive" else row.size for row in selected], float),
        "bytes": np.array([row.bytes_ for row in selected]),
        "time": np.array([row.seconds for row in selected]),
        "switched": np.array([row.in_switch for row in selected]),
    }


def used(link: FittedLink, row: MeasuredCollective) -> bool:
    """Whether a row belongs to a link: nccl-tests of its systems, and large messages of published figures."""
    if row.system in link.systems and row.source != "ml-engineering":
        return row.source != "vidur" or row.operation == "send_receive"
    return row.system in link.systems + link.published and row.bytes_ >= link.published_from


def calibrate(link: FittedLink, rows: list[MeasuredCollective]) -> tuple[dict[str, object], dict[str, str]]:
    """Return a link's calibration as it stands in the YAML, and its errors by operation and group size."""
    fitted: dict[str, object] = {}
    errors: dict[str, str] = {}
    for family in ORDER[:-1]:
        data = arrays(link, family, rows)
        if len(data["time"]) < 12:
            continue
        theta, left = fit(link, family, data)
        fitted[family] = constants(theta)
        if len(theta) > 10:
            start, efficiency = np.exp(theta[10:])
            fitted["in_switch"] = {
                "start_s": rounded(start * 1e-6),
                "efficiency": rounded(efficiency),
                "from_ranks": link.switch_from,
            }
        for size in np.unique(data["size"]):
            of_size = np.abs(left[data["size"] == size])
            median, p90 = np.quantile(of_size, [0.5, 0.9]) * 100
            errors[f"{family}, {size:.0f} ranks"] = f"{median:.1f} / {p90:.1f} ({len(of_size)} rows)"
    for missing, like in BORROWED:
        fitted.setdefault(missing, deepcopy(fitted[like]))
    ordered = {key: fitted[key] for key in ORDER if key in fitted}
    definition = {"name": link.name, **ordered, "provenance": link.provenance, "errors": errors}
    return with_origins(definition), errors


BORROWED = (
    ("all_gather", "all_reduce"),
    ("reduce_scatter", "all_gather"),
    ("all_to_all", "all_gather"),
    ("send_receive", "all_to_all"),
)
"""Families without rows of their own take the constants of the one that moves data most alike."""


def with_origins(definition: dict) -> dict:
    """Add kind and source to each family of a link; constants at a bound of the fit are assumed."""
    described = dict(definition)
    for family in ORDER:
        if family not in definition:
            continue
        measured = [text for key, text in definition["errors"].items() if key.startswith(f"{family},")]
        rows = sum(int(text.rpartition("(")[2].removesuffix(" rows)")) for text in measured)
        source = f"fitted to {rows} rows (provenance)" if rows else f"as {dict(BORROWED).get(family, '')}"
        if family == "in_switch":
            source, measured = "fitted to all_reduce of groups that use it (provenance)", [""]
        described[family] = {
            "kind": "measured" if measured else "assumed",
            "source": source,
            **_bounded(definition[family]),
        }
    return described


def _bounded(protocols: dict) -> dict:
    """Protocols whose constants at a bound of the fit say so."""
    bounded = deepcopy(protocols)
    for index, name in enumerate(("ll", "ll128", "simple")):
        for place, key in enumerate(("start_s", "step_s", "efficiency")):
            position = 3 * place + index
            scale = 1.0 if key == "efficiency" else 1e-6
            bounds = scale * np.exp(np.array([LOW[position], HIGH[position]]))
            if name in bounded and np.any(np.isclose(bounded[name][key], bounds, rtol=2e-3)):
                bound = {"value": bounded[name][key], "kind": "assumed", "source": "a bound of the fit"}
                bounded[name][key] = bound
    return bounded


@command
def main(files: Sequence[Path], *, output: Annotated[Path, "-o"], links: Sequence[str] = ()) -> None:
    rows = list(read_rows(files, Counter()))
    for link in LINKS:
        if links and link.name not in links:
            continue
        definition, errors = calibrate(link, rows)
        text = yaml.safe_dump(definition, sort_keys=False, default_flow_style=None, width=110)
        (output / f"{link.name.replace('-', '_')}.yaml").write_text(text)
        print(f"{link.name}\n  " + "\n  ".join(f"{key}: {value}" for key, value in errors.items()))
