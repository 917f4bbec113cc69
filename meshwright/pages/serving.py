"""A serving run as an HTML page: latencies over time, their causes, and the replicas' activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshwright.pages.page import Figure, Page, Section, axis, figure_of, label, line_at
from meshwright.reports.serving import figures, latency_rows, setting_facts
from meshwright.reports.serving_evidence import error_words, run_errors, within
from meshwright.reports.units import per_second, seconds, significant
from simulator.serving.fleet.fleet import Member
from simulator.serving.metrics import Latency, ServingMetrics
from simulator.serving.result import ServingResult

MOST_POINTS = 3000
"""Maximum number of requests drawn as points; of more requests, every n-th."""
TIMELINES = 30
"""Number of requests drawn as bars."""
COLOURS = {
    "ttft": "#c8374a",
    "tpot": "#2c6fbb",
    "e2e": "#6a51a3",
    "arrivals": "#9fb3c8",
    "running": "#2c6fbb",
    "waiting": "#e9a23b",
    "kv": "#6a51a3",
}
PHASES = (("queue", "#e9a23b"), ("prompt", "#c8374a"), ("output", "#62a5e3"))
PARTS = {
    "linear": "#2c6fbb",
    "attention": "#62a5e3",
    "experts": "#8f7fc9",
    "tensor": "#c8374a",
    "sampling": "#e9a23b",
    "host": "#9fb3c8",
}
Columns = Mapping[str, np.ndarray]


def serving_page(result: ServingResult) -> Page:
    """The page of a run."""
    columns = result.records.columns()
    setting = result.setting
    metrics, errors = result.metrics, run_errors(result)
    rows = {
        "goodput" if metrics.goodput is not None else "completed": f"{per_second(_rate(metrics))} req/s",
        **{
            f"{name.upper()} p90": within(seconds(latency.p90), errors.get(name))
            for name in ("ttft", "tpot", "e2e")
            if isinstance(latency := metrics.latencies.get(name), Latency)
        },
        "dollars per million output tokens": significant(metrics.dollars_per_million),
    }
    run = {
        **setting_facts(result),
        **figures(result),
        **error_words(errors),
    }
    details = [[name, words] for name, words in run.items()]
    sections = [_latencies(result), Section("The run", "", columns=("", ""), rows=details, words_in=(0, 1))]
    if len(columns["serial"]):
        sections += [
            Section("Latency of all requests", "Share of requests that were faster.", _cdfs(result, columns)),
            Section(
                "Latency over time",
                "Each point is a request at its arrival; the line below counts arrivals.",
                _over_time(columns),
            ),
            Section(
                "Occupancy and KV use over time",
                "Sequences in a step of a replica, sequences that wait for one, and KV blocks in use; means "
                "over replicas while they step.",
                _occupancy(result.fleet.members),
            ),
            Section(
                "Where the time of steps goes",
                "Seconds of all replicas by kind of step, split by what a mean step of that kind does.",
                _step_parts(result.fleet.members),
            ),
            Section(
                "Some requests",
                "The slowest to a first token, and others between them: waiting, computing the prompt, "
                "giving the output.",
                _timelines(columns),
            ),
        ]
    return Page(setting.title or "Serving", rows, sections)


def _rate(metrics: ServingMetrics) -> float:
    """Requests a second within the targets, or completed without targets."""
    return metrics.request_rate if metrics.goodput is None else metrics.goodput


def _latencies(result: ServingResult) -> Section:
    columns, rows = latency_rows(result)
    words = (
        "±: one of ten measured servers lies beyond; the run below says on which." if "±" in columns else ""
    )
    return Section("Latencies", words, columns=columns, rows=rows)


def _tpot(columns: Columns) -> np.ndarray:
    more = columns["output"] > 1
    spent = columns["last_s"] - columns["first_s"]
    return spent[more] / (columns["output"][more] - 1)


def _cdfs(result: ServingResult, columns: Columns) -> Figure:
    from_ = result.metrics.requests - result.metrics.counted
    measured = {name: values[from_:] for name, values in columns.items()}
    values = {
        "ttft": measured["first_s"] - measured["arrival_s"],
        "tpot": _tpot(measured),
        "e2e": measured["last_s"] - measured["arrival_s"],
    }
    slo = result.setting.serving.slo
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {"yaxis": axis("share of requests", range=[0, 1.02], tickformat=".0%")}
    shapes: list[dict[str, Any]] = []
    for number, (name, latency) in enumerate(values.items()):
        suffix = "" if number == 0 else str(number + 1)
        ordered = np.sort(latency)
        points = np.unique(np.linspace(0, len(ordered) - 1, 400).astype(int)) if len(ordered) else []
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name.upper(),
                "x": ordered[points].tolist() if len(ordered) else [],
                "y": [(int(point) + 1) / len(ordered) for point in points],
                "xaxis": f"x{suffix}",
                "line": {"color": COLOURS[name], "width": 2},
                "hovertemplate": f"{name.upper()} %{{x:.3g}} s: %{{y:.1%}}<extra></extra>",
            }
        )
        axes[f"xaxis{suffix}"] = axis(
            f"{name.upper()} (s)",
            domain=[number / 3 + 0.02 * (number > 0), (number + 1) / 3 - 0.02],
            rangemode="tozero",
        )
        target = getattr(slo, name)
        if target is not None:
            drawn = line_at(target, color="#616e7c", dash="dash", width=1.5)
            shapes.append(drawn | {"xref": f"x{suffix}", "yref": "y"})
    return figure_of(data, height=380, shapes=shapes, showlegend=False, **axes)


def _over_time(columns: Columns) -> Figure:
    every = max(-(-len(columns["serial"]) // MOST_POINTS), 1)
    arrival = columns["arrival_s"]
    span = max(float(arrival.max()), 1e-9)
    counts, edges = np.histogram(arrival, bins=80, range=(0.0, span))
    width = float(edges[1] - edges[0])
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name.upper(),
            "x": arrival[::every].tolist(),
            "y": (columns[end] - arrival)[::every].tolist(),
            "marker": {"size": 4, "color": COLOURS[name], "opacity": 0.55},
            "hovertemplate": f"arrived %{{x:.1f}} s, {name.upper()} %{{y:.3g}} s<extra></extra>",
        }
        for name, end in (("ttft", "first_s"), ("e2e", "last_s"))
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "arrivals",
            "x": edges[:-1].tolist(),
            "y": (counts / width).tolist(),
            "yaxis": "y2",
            "fill": "tozeroy",
            "line": {"color": COLOURS["arrivals"], "shape": "hv", "width": 1},
            "hovertemplate": "%{y:.3g} requests/s<extra></extra>",
        }
    )
    return figure_of(
        data,
        height=460,
        xaxis=axis("arrival (s)", anchor="y2"),
        yaxis=axis("latency (s)", type="log", domain=[0.28, 1]),
        yaxis2=axis("requests/s", domain=[0, 0.2], rangemode="tozero"),
    )


def merged_series(members: Sequence[Member]) -> tuple[float, np.ndarray]:
    """Series of all replicas in bins of one width.

    Returns:
        Seconds of a bin, and sums of shape (bins, 5): busy seconds; running, waiting, KV blocks times
        seconds; output tokens.
    """
    width = max(member.meter.totals.series.width_s for member in members)
    parts = []
    for member in members:
        series = member.meter.totals.series
        factor = round(width / series.width_s)
        bins = series.bins
        padded = np.vstack([bins, np.zeros((-len(bins) % factor, 5))])
        parts.append(padded.reshape(-1, factor, 5).sum(axis=1))
    total = np.zeros((max(map(len, parts)), 5))
    for part in parts:
        total[: len(part)] += part
    return width, total


def _occupancy(members: Sequence[Member]) -> Figure:
    width, sums = merged_series(members)
    busy = np.maximum(sums[:, 0], 1e-12)
    blocks = np.mean([member.meter.kv_total for member in members])
    x = (np.arange(len(sums)) * width).tolist()
    lines = (
        ("running", sums[:, 1] / busy, "y"),
        ("waiting", sums[:, 2] / busy, "y"),
        ("KV use", 100 * sums[:, 3] / busy / blocks, "y2"),
    )
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": x,
            "y": values.tolist(),
            "yaxis": side,
            "line": {"color": COLOURS["kv" if side == "y2" else name], "shape": "hv", "width": 1.5},
            "hovertemplate": f"%{{y:.3g}} {'% of KV blocks' if side == 'y2' else name}<extra></extra>",
        }
        for name, values, side in lines
    ]
    return figure_of(
        data,
        height=420,
        xaxis=axis("time (s)", anchor="y2"),
        yaxis=axis("sequences", domain=[0.42, 1], rangemode="tozero"),
        yaxis2=axis("KV use (%)", domain=[0, 0.32], rangemode="tozero"),
    )


def _step_parts(members: Sequence[Member]) -> Figure:
    """Seconds by kind of step and part."""
    totals: dict[str, dict[str, float]] = {}
    for member in members:
        meter = member.meter.totals
        steps = sum(meter.steps.values()) - meter.steps["prefill"]
        decodes = round(meter.decode_slots / steps) if steps else 0
        kv = round(meter.kv_read / steps) if steps else 0
        with_prompts = meter.steps["prefill"] + meter.steps["mixed"]
        prompt = max(round(meter.prompt_tokens / with_prompts), 1) if with_prompts else 0
        for kind, spent in meter.seconds.items():
            if not spent:
                continue
            chunks = [] if kind == "decode" else [(prompt, 0)]
            beside = 0 if kind == "prefill" else max(decodes, 1)
            parts = member.pool.costs.steps.parts(chunks, beside, kv if beside else 0)
            total = sum(parts.values()) or 1.0
            into = totals.setdefault(kind, {})
            for name, share in parts.items():
                into[name] = into.get(name, 0.0) + share / total * spent
    names = list(dict.fromkeys(name for parts in totals.values() for name in parts))
    titles = {"prefill": "prompts alone", "mixed": "prompts and outputs", "decode": "outputs alone"}
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": [titles[kind] for kind in totals],
            "x": [parts.get(name, 0.0) for parts in totals.values()],
            "marker": {"color": PARTS.get(name, "#b0d0ef")},
            "hovertemplate": f"{name}: %{{x:.4g}} s<extra>%{{y}}</extra>",
        }
        for name in names
        if any(parts.get(name, 0.0) > 0 for parts in totals.values())
    ]
    return figure_of(
        data,
        barmode="stack",
        height=150 + 50 * len(totals),
        xaxis=axis("seconds of all replicas"),
        yaxis=axis(showgrid=False),
    )


def _timelines(columns: Columns) -> Figure:
    ttft = columns["first_s"] - columns["arrival_s"]
    order = np.argsort(ttft, kind="stable")
    slowest = order[::-1][: TIMELINES // 2]
    spread = order[np.linspace(0, len(order) - 1, TIMELINES - len(slowest)).astype(int)]
    drawn = np.unique(np.concatenate([slowest, spread]))
    drawn = drawn[np.argsort(-ttft[drawn], kind="stable")]
    rows = list(range(len(drawn)))
    sent = columns["arrival_s"][drawn]
    edges = [columns[name][drawn] - sent for name in ("arrival_s", "scheduled_s", "first_s", "last_s")]
    names = [
        label(
            f"request {columns['serial'][series]}: {columns['prompt'][series]:,} prompt tokens, "
            f"{columns['output'][series]:,} output tokens, sent at {columns['arrival_s'][series]:.1f} s"
        )
        for series in drawn
    ]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": phase,
            "y": rows,
            "base": start.tolist(),
            "x": (end - start).tolist(),
            "marker": {"color": colour},
            "customdata": names,
            "hovertemplate": f"%{{customdata}}<br>{phase}: %{{x:.3g}} s<extra></extra>",
        }
        for (phase, colour), start, end in zip(PHASES, edges[:-1], edges[1:], strict=True)
    ]
    ticks = {"tickvals": rows, "ticktext": [name.split(":")[0] for name in names]}
    return figure_of(
        data,
        barmode="overlay",
        bargap=0.3,
        height=130 + 20 * len(rows),
        xaxis=axis("seconds since it was sent"),
        yaxis=axis(autorange="reversed", showgrid=False, **ticks),
    )
