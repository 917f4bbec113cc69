"""Answers about serving and sweeps as HTML pages: one chart, and the tables of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from rich.table import Table

from meshwright.pages.fronts import target_line
from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label
from meshwright.pages.sections import sections_of
from meshwright.reports.days import seconds_of_day
from meshwright.reports.mixes import option_errors
from meshwright.reports.plan_evidence import short_runs
from meshwright.reports.run_bands import Band, days_band, in_proportion
from meshwright.reports.serving_evidence import plan_errors, short_evidence
from meshwright.reports.serving_verdict import prompts_only, tokens_s, usd_per_million
from meshwright.reports.units import cell, per_second, percent, seconds, significant
from planner.run_search import RunRanking
from planner.serving.curves import load_curve
from planner.serving.day import DayPlan
from planner.serving.mix.search import Mix
from planner.serving.search import ServingSearch

COLOURS = ("#2c6fbb", "#c8374a", "#e9a23b", "#6a51a3", "#2aa198", "#7b8794")
FIGURES = ("step_time_s", "goodput_requests_s", "tpot_s", "ttft_s", "usd_per_million_tokens", "usd_per_hour")
"""Figures of a sweep's points that a chart may show, the first that all points have."""
MOST_ROWS = 500
PLACES = ("top center", "bottom center", "middle right", "middle left")
"""Of labels beside points: neighbours differ."""


def deployments_page(search: ServingSearch, tables: Sequence[Table | str], unit: str = "requests") -> Page:
    """The page of a ranking of deployments, whose goodput counts ``unit``."""
    best, slo = search.plans[0], search.question.workload.slo
    error, prompts = plan_errors(search, best).get("tpot"), prompts_only(search)
    facts = {
        "first choice": best.describe(),
        "goodput": f"{per_second(best.goodput)} {unit}/s",
        "GPUs": f"{best.devices:,}",
        "TTFT": f"{seconds(best.ttft_s)} (p{100 * slo.share:.3g})",
        "TPOT": seconds(best.tpot_s) + ("" if error is None else f" ± {percent(error.p90, 0)}"),
        "cost": f"{significant(usd_per_million(search, best))} $/Mtok of {'input' if prompts else 'output'}",
        "evidence": short_evidence(search, best),
    }
    if prompts:
        del facts["TPOT"]
    plans = search.plans
    points = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [plan.ttft_s if prompts else 1.0 / plan.tpot_s for plan in plans],
        "y": [tokens_s(search, plan) / plan.devices for plan in plans],
        "text": [str(rank) for rank in range(1, len(plans) + 1)],
        "textposition": [PLACES[place % len(PLACES)] for place in range(len(plans))],
        "hovertext": [
            f"{label(plan.describe())}<br>{per_second(plan.goodput)} {unit}/s, "
            f"TTFT {seconds(plan.ttft_s)}, {significant(usd_per_million(search, plan))} $/Mtok"
            for plan in plans
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"size": 10, "color": COLOURS[0]},
    }
    target = slo.ttft if prompts else slo.tpot and 1.0 / slo.tpot
    shapes = [] if target is None else [target_line(target)]
    axes = {
        "xaxis": axis("TTFT, s" if prompts else "output tokens/s of a user"),
        "yaxis": axis(f"{'prompt' if prompts else 'output'} tokens/s of a GPU", rangemode="tozero"),
    }
    # Agents wait for tools and find their prompts cached, which curves of open arrivals leave out.
    curves = [] if unit == "turns" else _curves(search)
    data = [*curves, {**points, "showlegend": False}]
    figure = figure_of(data, height=480, hovermode="closest", shapes=shapes, **axes)
    line = (
        "Each line is a deployment from a low load up to its goodput, each point"
        if curves
        else "Each point is"
    )
    words = (
        f"{line} one at the {'rate' if curves else 'agents'} of its row, by rank; "
        f"{'left' if prompts else 'right'} and high is good."
    )
    words += "" if target is None else f" The dashed line is the target of {'TTFT' if prompts else 'TPOT'}."
    title = f"Serving {search.question.model.name}"
    heading = "A prompt's latency and a GPU's speed" if prompts else "A user's speed and a GPU's"
    in_short = [table for table in tables[:1] if isinstance(table, str)]
    summary, rest = sections_of(in_short), sections_of(tables[len(in_short) :])
    sections = [*summary, Section(heading, words, figure), *rest]
    return Page(title, facts, sections)


def _curves(search: ServingSearch) -> list[dict[str, Any]]:
    """One line for each deployment over its loads."""
    lines = []
    for rank, plan in enumerate(search.plans[: len(COLOURS)], start=1):
        curve = load_curve(search.question, plan)
        if curve is None:
            continue
        points = zip(curve.rate.tolist(), curve.ttft_s.tolist(), strict=True)
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{rank}: {label(plan.describe())}",
                "x": (curve.ttft_s if prompts_only(search) else curve.user).tolist(),
                "y": curve.device.tolist(),
                "hovertext": [
                    f"{per_second(rate)} requests/s, TTFT {seconds(ttft)}" for rate, ttft in points
                ],
                "hovertemplate": "%{hovertext}<extra>%{fullData.name}</extra>",
                "line": {"color": COLOURS[rank - 1], "width": 1.5, "shape": "spline"},
            }
        )
    return lines


def mix_page(mix: Mix, tables: Sequence[Table | str]) -> Page:
    """The page of a mix of GPU types: dollars an hour by type, requests by length."""
    facts = {
        "cost": f"{mix.best.usd_per_hour:.2f} $/h",
        "load": f"{mix.rate:g} requests/s",
        "above the bound": percent(mix.best.gap),
    }
    errors = [error.p90 for option, _, _ in mix.pools if (error := option_errors(mix, option).get("tpot"))]
    if errors:
        facts["TPOT, one of ten servers beyond"] = f"± {percent(max(errors), 0)}"
    names = [f"{count} x {option.describe()}" for option, count, _ in mix.pools]
    cost = [float(count * option.usd_per_hour) for option, count, _ in mix.pools]
    bars = {"type": "bar", "orientation": "h", "x": cost, "y": [label(name) for name in names]}
    bars |= {"marker": {"color": COLOURS[0]}, "text": [f"{value:.2f}" for value in cost]}
    axes = {"xaxis": axis("$ an hour"), "yaxis": axis(autorange="reversed")}
    figure = figure_of([bars], height=120 + 50 * len(names), **axes)
    title = f"Cheapest mix for {mix.question.model.name}"
    return Page(title, facts, [Section("What is rented", "", figure), *sections_of(tables)])


def day_page(day: DayPlan, tables: Sequence[Table | str]) -> Page:
    """The page of a day: replicas and load over its hours."""
    period = day.arrivals.period
    hours = [index * period / 3600 for index in range(len(day.arrivals.rates) + 1)]
    steps = {"shape": "hv", "width": 2}
    rates, counts = list(day.arrivals.rates), day.needed.tolist()
    lines = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": hours,
            "y": [*values, values[-1]],
            "line": {**steps, "color": colour, "dash": dash},
        }
        for name, values, colour, dash in (
            (
                "requests/s that the replicas carry",
                [day.rate * count for count in counts],
                COLOURS[0],
                "solid",
            ),
            ("requests/s asked", rates, COLOURS[1], "dot"),
        )
    ]
    ticks = [seconds_of_day(hour * 3600) for hour in hours]
    axes = {
        "xaxis": axis("time of day", tickvals=hours, ticktext=ticks),
        "yaxis": axis("requests/s", rangemode="tozero"),
    }
    facts = {
        "replica": day.group.shape.describe(),
        "timetable": f"{day.timetable_usd:,.2f} $ a day",
        "all day the most": f"{day.fixed_usd:,.2f} $ a day",
    }
    figure = figure_of(lines, height=380, **axes)
    title = f"A day of {day.question.model.name}"
    return Page(title, facts, [Section("Replicas over the day", "", figure), *sections_of(tables)])


def runs_page(ranking: RunRanking, tables: Sequence[Table | str]) -> Page:
    """The page of ranked runs: dollars over days, with bands."""
    runs = [each for size in ranking.sizes for each in size.ranked]
    bands = [days_band(each.run) for each in runs]
    several = len({each.gpus for each in runs}) > 1
    bars = {}
    if ranking.best is not None:
        days = days_band(ranking.best.run)
        bars = {
            "best run": f"{ranking.best.plan.describe()} on {ranking.best.gpus:,} GPUs",
            "finish": days.words("days"),
            "cost": in_proportion(ranking.best.run.usd, days).money(),
            "goodput": percent(ranking.best.run.outcome.goodput),
            "evidence": short_runs(ranking.best.run.prediction.confidence) or "timed by the engine",
        }
    points = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [band.middle for band in bands],
        "y": [each.run.usd for each in runs],
        "error_x": _ends(bands),
        "error_y": _ends([in_proportion(each.run.usd, band) for each, band in zip(runs, bands, strict=True)]),
        "text": [f"{each.gpus:,}" if several else str(rank) for rank, each in enumerate(runs, start=1)],
        "textposition": "top center",
        "hovertext": [
            label(f"{each.plan.describe()}, {each.mechanism or 'no'} checkpoints") for each in runs
        ],
        "hovertemplate": "%{hovertext}<br>%{x:.3g} days, %{y:,.3g} $<extra></extra>",
        "marker": {"size": 9, "color": COLOURS[0]},
    }
    figure = figure_of([points], height=380, hovermode="closest", xaxis=axis("days"), yaxis=axis("$"))
    shown_by = "GPUs" if several else "rank"
    words = (
        f"Each point is a run by its {shown_by}; the lines are 90 % bands of step and faults, in which "
        "days and dollars move together."
    )
    return Page(ranking.title, bars, [Section("Cost against days", words, figure), *sections_of(tables)])


def _ends(bands: Sequence[Band]) -> dict[str, Any]:
    """Thin bars from the low to the high end of figures; none above an open one."""
    above = [band.high - band.middle if isfinite(band.high) else 0.0 for band in bands]
    below = [band.middle - band.low for band in bands]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 0.7}


def sweep_page(title: str, points: Sequence[Mapping[str, Any]], grid: Sequence[str]) -> Page:
    """The page of a sweep: a figure over the grid's last numeric key, lines by other keys.

    Args:
        title: of the sweep.
        points: rows by name: the grid's values, then the figures, or ``problem``.
        grid: names of the grid's keys.
    """
    answered = [row for row in points if not row.get("problem")]
    facts = {"points": f"{len(points):,}", "without an answer": f"{len(points) - len(answered):,}"}
    names = list(dict.fromkeys(name for row in points for name in row))
    fixed = [name for name in names if len({cell(row.get(name)) for row in points}) == 1 < len(points)]
    names = [name for name in names if name not in fixed]
    rows = [[cell(row.get(name)) for name in names] for row in points[:MOST_ROWS]]
    more = f"The first {MOST_ROWS:,} points." if len(points) > MOST_ROWS else ""
    words_in = tuple(
        index for index, name in enumerate(names) if any(isinstance(row.get(name), str) for row in points)
    )
    if fixed:
        more += f" {len(fixed)} columns that are the same at all points are left out; --out writes all."
    table = Section("All points", more.strip(), columns=names, rows=rows, words_in=words_in)
    return Page(title, facts, [*_sweep_chart(answered, grid), table])


def _sweep_chart(points: Sequence[Mapping[str, Any]], grid: Sequence[str]) -> list[Section]:
    """The first figure that all points have, over the last key of the grid that holds numbers."""
    figure = next((name for name in FIGURES if points and all(name in row for row in points)), None)
    keys = [key for key in grid if all(isinstance(row.get(key), int | float) for row in points)]
    if figure is None or not keys:
        return []
    across = keys[-1]
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in points:
        name = ", ".join(f"{key.rpartition('.')[2]} {row[key]}" for key in grid if key != across) or figure
        xs, ys = lines.setdefault(name, ([], []))
        xs.append(row[across])
        ys.append(row[figure])
    words = "One line for each combination of the grid's other keys."
    return [Section(f"{figure} over {across}", words, lines_figure(across, figure, lines))]


def lines_figure(x: str, y: str, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Lines with points by name, over named axes."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(name),
            "x": list(xs),
            "y": list(ys),
            "marker": {"size": 8, "color": COLOURS[index % len(COLOURS)]},
            "line": {"color": COLOURS[index % len(COLOURS)]},
        }
        for index, (name, (xs, ys)) in enumerate(lines.items())
    ]
    axes = {"xaxis": axis(x, rangemode="tozero"), "yaxis": axis(y, rangemode="tozero")}
    below = {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "traceorder": "normal"}
    style = {"height": 380 + 12 * len(data), "showlegend": True, "hovermode": "closest", "legend": below}
    return figure_of(data, **style, **axes)
