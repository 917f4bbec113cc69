"""Serving runs over several seeds: medians with a range, and differences that the seeds cannot tell.

All variations of a comparison run with the same seeds: the same lengths and unit gaps between arrivals. The
difference of two runs is therefore paired by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from core.errors import InputError

if TYPE_CHECKING:
    from simulator.serving.setting import ServingSetting

DEFAULT = 3
"""Seeds of each run of a comparison."""
MOST = 1000
FIGURES = {
    "TTFT p50": ("ttft_s", "p50"),
    "TTFT p99": ("ttft_s", "p99"),
    "TPOT p50": ("tpot_s", "p50"),
    "TPOT p99": ("tpot_s", "p99"),
    "e2e p50": ("e2e_s", "p50"),
    "tok/s": ("output_rate",),
}
"""Figures whose values are kept for each seed, by their heading."""
STUDENT_99 = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250)
"""99.5th percentile of Student's t with 1 to 9 degrees of freedom: an interval of 99 %."""
NORMAL_99 = 2.576


@dataclass(frozen=True)
class Difference:
    """Change of a figure over the base's, paired by seed.

    Attributes:
        change: median of the ratios, less 1.
        tells: whether the 99 % interval of the mean logarithm of the ratios leaves out no change.
    """

    change: float
    tells: bool


def check_replications(count: int | None) -> int:
    """The number of seeds; the default where none is stated.

    Raises:
        InputError: not from 1 to `MOST`.
    """
    if count is None:
        return DEFAULT
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise InputError(f"must be a whole number from 1 to {MOST:,}, found {count!r}", "replications")
    return count


def seeded(setting: ServingSetting, count: int) -> list[ServingSetting]:
    """A setting under consecutive seeds; once where it draws nothing: a trace has its own arrivals."""
    drawn = 1 if setting.serving.trace is not None else count
    return [replace(setting, seed=setting.seed + number) for number in range(drawn)]


def over_seeds(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The medians of reports of one run under several seeds, with the values of `FIGURES` by seed."""
    if len(reports) == 1:
        return dict(reports[0])
    values = {
        name: [read(report, path) for report in reports]
        for name, path in FIGURES.items()
        if all(read(report, path) is not None for report in reports)
    }
    seeds = [report["seed"] for report in reports]
    return {**_medians(reports), "seed": seeds[0], "seeds": seeds, "by_seed": values}


def read(report: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a path of keys; None where there is none."""
    value: Any = report
    for key in path:
        value = None if value is None else value.get(key)
    return value


def _medians(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers as medians, all else as in the first report."""
    return {key: _median([report.get(key) for report in reports]) for key in reports[0]}


def _median(values: Sequence[Any]) -> Any:
    first = values[0]
    if all(isinstance(value, Mapping) for value in values):
        return _medians(values)
    if isinstance(first, bool | str | list) or all(value == first for value in values):
        return first
    numbers = [value for value in values if isinstance(value, int | float)]
    return median(numbers) if 2 * len(numbers) > len(values) else None


def half_range(report: Mapping[str, Any], name: str) -> float | None:
    """Half the range of a figure over its seeds, as a share of the median; None with one seed."""
    values = report.get("by_seed", {}).get(name)
    middle = median(values) if values else 0.0
    return 0.5 * (max(values) - min(values)) / middle if middle else None


def difference(report: Mapping[str, Any], base: Mapping[str, Any], name: str) -> Difference | None:
    """Change of a figure over the base's; None where one has no value for each of the same seeds."""
    ours, theirs = (each.get("by_seed", {}).get(name) for each in (report, base))
    if not ours or not theirs or report["seeds"] != base["seeds"] or min(*ours, *theirs) <= 0:
        return None
    logs = [math.log(mine / other) for mine, other in zip(ours, theirs, strict=True)]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / (len(logs) - 1) / len(logs))
    tells = abs(mean) > max(student_99(len(logs) - 1) * spread, 1e-9)
    return Difference(math.exp(median(logs)) - 1.0, tells)


def student_99(freedom: int) -> float:
    """99.5th percentile of Student's t; beyond the table by Hill's expansion around the normal one."""
    if freedom <= len(STUDENT_99):
        return STUDENT_99[freedom - 1]
    z = NORMAL_99
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
