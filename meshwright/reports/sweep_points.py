"""Points of a sweep for people: the best of them in two lines, then their main figures in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.tables import fitted, table
from meshwright.reports.units import cell, gibibytes, per_second, percent, seconds
from simulator.plan import Plan

Row = Mapping[str, Any]

LONGEST = 40
"""Points that the table shows."""
WIDE = 10
"""Columns of a table of points without a known figure."""
SHOWN: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "deployment": ("deployment", str),
    "step_time_s": ("step", seconds),
    "step_time_uncertainty": ("±", lambda share: percent(share, 0)),
    "tokens_per_s_per_gpu": ("tok/s/GPU", "{:,.0f}".format),
    "mfu": ("MFU", percent),
    "memory.peak_bytes": ("memory", gibibytes),
    "goodput_requests_s": ("goodput", lambda rate: f"{per_second(rate)}/s"),
    "request_rate": ("completed", lambda rate: f"{per_second(rate)}/s"),
    "slo_share": ("within targets", percent),
    "ttft_s": ("TTFT", seconds),
    "ttft_s.p50": ("TTFT p50", seconds),
    "ttft_s.p99": ("TTFT p99", seconds),
    "tpot_s": ("TPOT", seconds),
    "tpot_s.p50": ("TPOT p50", seconds),
    "expected_errors.tpot.p90": ("± of TPOT", lambda share: percent(share, 0)),
    "sustainable_rate": ("sustainable", lambda rate: f"overload, {per_second(rate)}/s"),
    "usd_per_million_tokens": ("$/Mtok", "{:.3g}".format),
    "dollars_per_million": ("$/Mtok", "{:.3g}".format),
}
"""Heading and format of the figures that the table shows, by key, in its order."""
BEST = (
    (("usd_per_million_tokens", "dollars_per_million"), "Cheapest", min, "{} $/Mtok"),
    (("step_time_s",), "Shortest step", min, "{}"),
    (("goodput_requests_s", "request_rate"), "Most requests", max, "{}"),
)
"""Figures by which the verdict names the best point: keys, of which a point has one, words, choice, unit."""


def point_tables(points: Sequence[Row], grid: Sequence[str]) -> list[Table | str]:
    """The verdict, the grid's values with the main figures of each point, and how many points are left out.

    Args:
        points: rows by name: the grid's values, then the figures, or ``problem``.
        grid: names of the grid's keys.
    """
    answered = [row for row in points if not row.get("problem")]
    rows = answered[:LONGEST]
    columns = {_short(key, grid): [cell(row.get(key)) for row in rows] for key in grid}
    left = len(columns)
    if any("plan.tensor" in row for row in rows):
        columns["plan"] = [_plan(row) for row in rows]
        left += 1
    figures = {key: look for key, look in SHOWN.items() if any(row.get(key) is not None for row in rows)}
    for key, (heading, words) in figures.items():
        cells = ["" if (value := row.get(key)) is None else words(value) for row in rows]
        columns[heading] = cells
        left += key == "deployment"
    if not figures:
        names = list(dict.fromkeys(name for row in rows for name in row if name not in grid))[:WIDE]
        columns |= {name: [cell(row.get(name)) for row in rows] for name in names}
    sheet = table(list(columns), list(zip(*columns.values(), strict=True)), left=left)
    refused = [[_place(row, grid), row["problem"].partition("\n")[0]] for row in points if row.get("problem")]
    hidden = max(len(answered), len(refused)) - LONGEST
    parts: list[Table | str] = [*filter(None, [points_verdict(points, grid)])]
    parts += [sheet] if rows else []
    parts += [table(("no answer", "because"), refused[:LONGEST], left=2)] if refused else []
    return parts + ([f"{hidden:,} more points: -o FILE.csv writes all"] if hidden > 0 else [])


def points_verdict(points: Sequence[Row], grid: Sequence[str]) -> str:
    """The best points by cost and speed, and how many points have no answer."""
    answered = [row for row in points if not row.get("problem") and row.get("sustainable_rate") is None]
    sentences = []
    for keys, words, choice, unit in BEST:
        pairs = [(row, key) for row in answered for key in keys if row.get(key)]
        if not pairs:
            continue
        row, key = choice(pairs, key=lambda pair: pair[0][pair[1]])
        sentences.append(
            f"{words}: {_place(row, grid)}, {unit.format(SHOWN[key][1](row[key]))}{_band(row, key)}."
        )
    if sentences and (none := sum(bool(row.get("problem")) for row in points)):
        sentences.append(f"{none:,} of {len(points):,} points have no answer.")
    return "\n".join(fitted([], sentences))


def _place(row: Row, grid: Sequence[str]) -> str:
    """The grid's values of a point."""
    return ", ".join(f"{_short(name, grid)} {cell(row.get(name))}" for name in grid)


def _band(row: Row, key: str) -> str:
    half = row.get("step_time_uncertainty")
    return f" ± {percent(half, 0)}" if half is not None and key != "request_rate" else ""


def _short(key: str, grid: Sequence[str]) -> str:
    """The last part of a key path, where no other key of the grid ends alike."""
    last = key.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in grid) == 1 else key


def _plan(row: Row) -> str:
    """The degrees of a point's plan."""
    fields = {name.removeprefix("plan."): value for name, value in row.items() if name.startswith("plan.")}
    plan = {name: value for name, value in fields.items() if name in Plan.model_fields}
    return Plan(**plan).describe() if plan else ""
