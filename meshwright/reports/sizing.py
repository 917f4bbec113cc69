"""Cost against time over numbers of GPUs and clusters."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from meshwright.reports.plans import describe_plan
from meshwright.reports.run_bands import Band, around
from meshwright.reports.tables import fitted, table
from meshwright.reports.units import counted, percent, seconds
from planner.training.prediction import Prediction
from planner.training.sizing import Size, Sizing

NEAR = 0.05
"""Share of the least cost that buys time for about the same money: below any band of a step."""
TIMES = ((1.0, "d"), (24.0, "h"), (1440.0, "min"))
"""Units of a size's time, and how many a day has: the first of which it takes one."""


def describe_sizing(sizing: Sizing) -> dict[str, Any]:
    """All sizes with documented keys."""
    front = sizing.front
    return {
        "tokens": sizing.tokens,
        "deadline_days": sizing.deadline_days,
        "budget_usd": sizing.budget_usd,
        "sizes": [_described(sizing, size, size in front) for size in sizing.sizes],
        "cheapest": _index(sizing, sizing.cheapest),
        "fastest": _index(sizing, sizing.fastest),
    }


def _index(sizing: Sizing, size: Size | None) -> int | None:
    return None if size is None else list(sizing.sizes).index(size)


def _described(sizing: Sizing, size: Size, on_front: bool) -> dict[str, Any]:
    size_asked = {"cluster": size.cluster, "gpus": size.gpus}
    if size.result is None or not size.planned:
        return {**size_asked, "problem": size.problem}
    plan = describe_plan(Prediction.of_search(size.result), 0)
    late = sizing.deadline_days is not None and size.days > sizing.deadline_days
    over = sizing.budget_usd is not None and size.usd > sizing.budget_usd
    costs = {"days": size.days, "usd": size.usd, "kwh": size.kwh}
    met = {"meets_deadline": not late, "meets_budget": not over}
    return {**size_asked, **costs, **met, "on_front": on_front, **plan}


def sizing_tables(sizing: Sizing) -> list[Table | str]:
    """All sizes for people, and the cheapest and the fastest."""
    front = sizing.front
    rows: list[list[str]] = []
    failed: dict[tuple[str, str], list[str]] = {}
    for size in sizing.sizes:
        if size.result is None or not size.planned:
            # The reason names the size, which its own column has.
            reason = size.problem.replace(f" for {size.gpus} devices", "")
            failed.setdefault((size.cluster, reason), []).append(str(size.gpus))
            continue
        metrics, plan = size.result.metrics, size.result.plans.plan(0)
        late = sizing.deadline_days is not None and size.days > sizing.deadline_days
        over = sizing.budget_usd is not None and size.usd > sizing.budget_usd
        rows.append(
            [
                size.cluster,
                f"{size.gpus:,}",
                plan.describe(),
                seconds(float(metrics.step_time_s[0])),
                percent(float(metrics.model_flops_utilisation[0])),
                time_words(size) + (" late" if late else ""),
                band_words(size),
                usd_words(size) + (" over" if over else ""),
                energy_words(size),
                "front" if size in front else "",
            ]
        )
    headings = ("cluster", "GPUs", "plan", "step", "MFU", "time", "±", "$", "energy", "")
    clusters = list(dict.fromkeys(size.cluster for size in sizing.sizes))
    title, left = f"{counted(sizing.tokens)} tokens", 1
    if len(clusters) == 1:
        headings, rows, left = headings[1:], [row[1:] for row in rows], 0
        title += f" on {clusters[0]}"
    tables: list[Table | str] = [table(headings, rows, title, left=left)]
    tables += ["front: no other size is both faster and cheaper."] if len(rows) > 1 else []
    if failed:
        lines = [[cluster, ", ".join(gpus), reason] for (cluster, reason), gpus in failed.items()]
        tables.append(table(("cluster", "GPUs", "no plan because"), lines, left=3))
    return ["\n".join(_words(sizing)), *tables] if front else tables


def _words(sizing: Sizing) -> list[str]:
    cheapest, fastest = sizing.cheapest, sizing.fastest
    words, limits = [], limit_words(sizing)
    if cheapest is None and fastest is not None:
        words.append(f"No size is{limits}.")
    if fastest is not None and fastest is cheapest:
        return _size(f"Fastest and cheapest{limits}", fastest)
    if fastest is not None:
        words += _size("Fastest", fastest)
    if cheapest is not None:
        words += _size(f"Cheapest{limits}", cheapest)
        if sizing.budget_usd is not None and sizing.fastest_within not in (cheapest, fastest):
            words += _size(f"Fastest{limits}", sizing.fastest_within or cheapest)
        words += _near(sizing, cheapest, fastest)
    return words


def _near(sizing: Sizing, cheapest: Size, fastest: Size | None) -> list[str]:
    """The fastest size for about the least money, where it is neither the cheapest nor the fastest."""
    late = sizing.deadline_days or math.inf
    cheap = [size for size in sizing.sizes if size.usd <= (1 + NEAR) * cheapest.usd and size.days <= late]
    quick = min(cheap, key=lambda size: size.days)
    if quick in (cheapest, fastest, sizing.fastest_within if sizing.budget_usd is not None else None):
        return []
    return _size(f"Fastest within {percent(NEAR, 0)} of the cheapest", quick)


def band_of(size: Size) -> float | None:
    """Half-width of the 90 % band of a size's step, shared by its days, dollars and energy."""
    confidence = Prediction.of_search(size.result).confidence if size.result is not None else None
    return None if confidence is None else float(confidence.half_width[0])


def band_words(size: Size) -> str:
    """The band of a size in percent; empty where it is not known."""
    half = band_of(size)
    return "" if half is None else percent(half, 0)


def time_band(size: Size) -> tuple[Band, str]:
    """Time of a size with its band, in days, or below a day in hours or minutes."""
    each, unit = next((each, unit) for each, unit in TIMES if size.days * each >= 1 or unit == "min")
    return around(size.days * each, band_of(size)), unit


def energy_band(size: Size) -> tuple[Band, str]:
    """Energy of a size with its band."""
    each, unit = (1000.0, "MWh") if size.kwh >= 1000 else (1.0, "kWh")
    return around(size.kwh / each, band_of(size)), unit


def time_words(size: Size) -> str:
    """Time of a size, rounded as it is known."""
    band, unit = time_band(size)
    return f"{band.middle_words()} {unit}"


def usd_words(size: Size) -> str:
    """Dollars of a size, rounded as they are known."""
    return around(size.usd, band_of(size)).middle_words()


def energy_words(size: Size) -> str:
    """Energy of a size, rounded as it is known."""
    band, unit = energy_band(size)
    return f"{band.middle_words()} {unit}"


def days_words(days: float) -> str:
    """Days in words: 1 day, 2.5 days."""
    return f"{days:g} day{'' if days == 1 else 's'}"


def limit_words(sizing: Sizing) -> str:
    """Deadline and budget in words: " within 60 days and 2,000,000 $"; empty without either."""
    limits = [days_words(sizing.deadline_days)] if sizing.deadline_days is not None else []
    limits += [f"{sizing.budget_usd:,.0f} $"] if sizing.budget_usd is not None else []
    return f" within {' and '.join(limits)}" if limits else ""


def _size(what: str, size: Size) -> list[str]:
    """A size in lines: what it is, time, dollars and energy with their bands."""
    time, unit = time_band(size)
    money = around(size.usd, band_of(size)).money()
    return fitted(
        [
            f"{what}: {size.gpus:,} GPU{'s' * (size.gpus > 1)} of {size.cluster}",
            time.words(unit),
            money,
            energy_words(size),
        ]
    )
