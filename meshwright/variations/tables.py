"""Effects of variations of a scenario: step time by part, memory, cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from meshwright.reports.flat import flat
from meshwright.reports.insisted import insisted_words
from meshwright.reports.plans import ONCE, WORDS
from meshwright.reports.run_bands import band_of, in_proportion
from meshwright.reports.runs import detector_table
from meshwright.reports.tables import table
from meshwright.reports.units import gibibytes, percent, seconds, signed_percent, significant
from meshwright.variations.answer import Outcome
from meshwright.variations.verdicts import steps_verdict
from simulator.plan import Plan
from simulator.training.step_graph.streams import PASS

NUMBERS = 7
"""Last column of numbers in the table."""
SHOWN_PARTS = 3
"""Parts of the step that a line of the table names."""
LEAST_SHARE = 0.002
"""Minimum change of a part to name, as a share of the base step."""


Figures = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
"""What a report adds to itself beside that of the base."""


def describe_outcomes(
    title: str, outcomes: Sequence[Outcome], interrupted: bool, figures: Figures, **more: Any
) -> dict[str, Any]:
    """All outcomes with documented keys; the first is the base.

    Args:
        title: of the scenario.
        outcomes: the base first.
        interrupted: whether Ctrl-C ended the variations early.
        figures: changes of a variation's report from the base's.
        more: further keys of the answer.
    """
    base = outcomes[0].report or {}
    variations = []
    for outcome in outcomes[1:]:
        run, report = outcome.run, outcome.report
        entry = {"name": run.name, "label": run.label, "changed": dict(run.changed), "replanned": run.replan}
        result = {"problem": outcome.problem} if report is None else {**figures(report, base), **report}
        variations.append({**entry, **result})
    return {"title": title, **more, "interrupted": interrupted, "base": base, "variations": variations}


def step_changes(report: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Changes of a training step, and what moved."""
    return {
        "step_time_change": change(report, base, "step_time_s"),
        "usd_per_million_tokens_change": change(report, base, "usd_per_million_tokens"),
        "moved_s": part_changes(report, base),
    }


def change(report: dict[str, Any], base: dict[str, Any], key: str) -> float:
    """A figure over that of the base, less 1."""
    return report[key] / base[key] - 1 if base[key] else 0.0


def part_changes(report: dict[str, Any], base: dict[str, Any]) -> dict[str, float]:
    """Change of every part of the step in seconds, the largest first; the changes add up to that of the step
    time."""
    now, before = report["time_breakdown_s"], base["time_breakdown_s"]
    now, before = _as_coarse_as(now, before), _as_coarse_as(before, now)
    parts = {name: now.get(name, 0.0) - before.get(name, 0.0) for name in dict.fromkeys([*before, *now])}
    return dict(sorted(parts.items(), key=lambda item: -abs(item[1])))


def _as_coarse_as(parts: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """The parts, merged where the other step counts whole passes ("compute")."""
    if PASS not in other or PASS in parts:
        return parts
    inside = sum(seconds for name, seconds in parts.items() if name not in other)
    return {PASS: inside, **{name: seconds for name, seconds in parts.items() if name in other}}


def answer_table(title: str, outcomes: Sequence[Outcome]) -> list[Table | str]:
    """The verdict, all outcomes for people, the base first, and failed runs."""
    columns, rows = figures(outcomes)
    main = table(columns, rows, title)
    for column in main.columns[NUMBERS:]:
        column.justify = "left"
    tables: list[Table | str] = [
        *filter(None, [steps_verdict(outcomes)]),
        main,
        *band_words(outcomes),
        *run_comparison(outcomes),
    ]
    tables += insisted_words((outcome.run.label, outcome.report or {}) for outcome in outcomes)
    if failed := failures(outcomes):
        tables.append(table(("cannot be run", "because"), failed, left=2))
    return tables


BAND = "±: 90 % band of the step, and of its dollars; what rows share of it cancels in the change."


def band_words(outcomes: Sequence[Outcome]) -> list[str]:
    """What ± means, where a row has it: steps that the engine timed have none."""
    has_band = any((each.report or {}).get("step_time_uncertainty") is not None for each in outcomes)
    return [BAND] if has_band else []


def run_comparison(outcomes: Sequence[Outcome]) -> list[Table]:
    """Runs of weeks of the outcomes that have one."""
    rows = []
    for outcome in outcomes:
        run = (outcome.report or {}).get("run")
        if run:
            lost = sorted(run["states_s"].items(), key=lambda item: -item[1])
            named = [
                f"{state} {spent / 3600:.1f} h"
                for state, spent in lost
                if state != "productive" and spent > 0
            ]
            days = band_of(run)
            goodput = f"{100 * run['goodput']:.2f} %"
            lost_to = ", ".join(named[:SHOWN_PARTS]) or "nothing"
            usd = "" if run["usd"] is None else in_proportion(run["usd"], days).middle_words()
            rows.append([outcome.run.label, days.middle_words(), days.ends(), goodput, usd, lost_to])
    columns = ["run", "days", "90 %", "goodput", "$", "most time is lost to"]
    described = [
        (outcome.run.label, outcome.report["run"])
        for outcome in outcomes
        if outcome.report and "run" in outcome.report
    ]
    return [table(columns, rows, "The run"), *detector_table(described)] if rows else []


def figures(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of all outcomes with figures; words stand in the first and after ``NUMBERS``."""
    base = outcomes[0].report or {}
    replanned = any(outcome.run.replan for outcome in outcomes)
    columns = ["variation", "step", "±", "change", "tok/s/GPU", "memory", "$/Mtok", "what moved"]
    rows = [_row(outcome, base, replanned) for outcome in outcomes if outcome.report is not None]
    return columns + (["plan"] if replanned else []), rows


def figure_rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The base and the variations of ``whatif --json``, a row of plain figures each."""
    base = {"label": "base", **flat(answer["base"])}
    return [base, *({"label": each["label"], **flat(each)} for each in answer["variations"])]


def failures(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Failed runs and their reasons."""
    return [[outcome.run.label, outcome.problem] for outcome in outcomes if outcome.report is None]


def _row(outcome: Outcome, base: dict[str, Any], replanned: bool) -> list[str]:
    report = outcome.report or {}
    memory, first = report["memory"], report is base
    cells = [
        outcome.run.label,
        seconds(report["step_time_s"]),
        "" if (half := report.get("step_time_uncertainty")) is None else percent(half, 0),
        "" if first else signed_percent(change(report, base, "step_time_s")),
        f"{report['tokens_per_s_per_gpu']:,.0f}",
        gibibytes(memory["peak_bytes"]) + ("" if memory["fits"] else ", does not fit"),
        significant(report["usd_per_million_tokens"]),
        "" if first else what_moved(report, base),
    ]
    if replanned:
        cells.append(plan_words(report["plan"]) if first or outcome.run.replan else "")
    return cells


def what_moved(report: dict[str, Any], base: dict[str, Any]) -> str:
    """The parts of the step that moved most, in words."""
    least = LEAST_SHARE * base["step_time_s"]
    parts = [(name, by) for name, by in part_changes(report, base).items() if abs(by) >= least][:SHOWN_PARTS]
    return ", ".join(f"{part_words(name)} {'+' if by > 0 else '-'}{seconds(abs(by))}" for name, by in parts)


def part_words(name: str) -> str:
    """A part of the step as tables call it."""
    return ONCE.get(name) or WORDS.get(name) or name.replace("_", " ")


def plan_words(plan: dict[str, Any]) -> str:
    """A plan in one line."""
    shown_plan = Plan(**plan)
    words = [
        shown_plan.describe(),
        f"micro {shown_plan.micro_batch}",
        shown_plan.schedule if shown_plan.pipeline > 1 else "",
    ]
    words += [f"recompute {shown_plan.recompute}" if shown_plan.recompute != "none" else ""]
    words += [f"ZeRO-{shown_plan.zero}" if shown_plan.zero else ""]
    return ", ".join(word for word in words if word)


def estimate_words(same_plan: int, replanned: int, expected_s: float) -> str:
    """Announcement of the runs, before they start."""
    kinds = [
        f"{count:,} {words}"
        for count, words in ((same_plan, "with the same plan"), (replanned, "re-planned"))
        if count
    ]
    runs = same_plan + replanned
    return f"{runs:,} run{'s' * (runs != 1)} ({', '.join(kinds)}), about {duration(expected_s)}"


def duration(expected_s: float) -> str:
    """A rough duration: ``40 s``, ``12 min``, ``3 h``."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if expected_s >= 2 * size:
            return f"{expected_s / size:,.0f} {unit}"
    return f"{max(expected_s, 1.0):.0f} s"
