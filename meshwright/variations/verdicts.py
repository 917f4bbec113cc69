"""Variations of a scenario in two or three lines: the best, by how much, and those without a difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshwright.replications import FIGURES, difference, read
from meshwright.reports.run_bands import band_of, in_proportion
from meshwright.reports.served_verdict import overload_words
from meshwright.reports.tables import fitted
from meshwright.reports.units import percent, seconds, signed_percent, significant
from meshwright.variations.answer import Outcome
from simulator.serving.workload import Slo
from simulator.uncertainty import model_errors

NAMED = 4
"""Variations that a sentence names."""
SHARED = ("gpus", "seq_len", "global_batch")
"""Keys that must agree for steps to be compared by their seconds."""
DEMAND = ("arrivals", "input", "output", "trace", "images")
"""Keys of a workload that say what is asked of servers."""
TOKENS = "tokens_per_s_per_gpu"
SHARE = Slo.model_fields["share"].default
"""Share of requests that must meet their targets, where a scenario states none."""


def steps_verdict(outcomes: Sequence[Outcome]) -> str:
    """The best step beside the base's, and variations that do not fit, cannot run or make no difference."""
    base, *others = outcomes
    ran = [each for each in others if each.report is not None]
    if base.report is None or not ran:
        return ""
    fit = [each for each in ran if _fits(each.report)]
    if all("run" in (each.report or {}) for each in (base, *ran)):
        lines = _best_run(base.report, fit)
    elif TOKENS in base.report and any(_other_batch(each.report or {}, base.report) for each in fit):
        lines = _most_tokens(base.report, fit)
    else:
        lines = _best_step(base.report, fit)
    if lines and fit:
        lines += _replanned_base(others)
    same_batch = [each for each in fit if not _other_batch(each.report or {}, base.report)]
    even = [each for each in same_batch if abs(_change(each.report, base.report, "step_time_s")) < _even()]
    if len(ran) > 1 and even:
        lines.append(f"{_named(even)}: within {percent(_even(), 0)} of the base, too close to tell apart.")
    return "\n".join(fitted([], lines + _not_run(others)))


def _other_batch(report: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    return any(report.get(key) != base.get(key) for key in SHARED)


def _even() -> float:
    """Predicted change below which its sign is right half of the time."""
    return model_errors().difference.even


def _fits(report: Mapping[str, Any] | None) -> bool:
    return report is not None and report.get("memory", {}).get("fits", True)


def _best_step(base: Mapping[str, Any], fit: Sequence[Outcome]) -> list[str]:
    """The shortest step, where all have the same batch and devices."""
    if not fit:
        return []
    best = min(fit, key=lambda each: (each.report or {})["step_time_s"])
    report = best.report or {}
    change = _change(report, base, "step_time_s")
    figures = (
        f"{_step(report)} against {_step(base)} of the base ({signed_percent(change)}{_usd(report, base)})"
    )
    if len(fit) == 1:
        told = ", too close to tell apart" if abs(change) < _even() else ""
        return [f"{best.run.label}: {figures}{told}."]
    if change > -_even():
        return [f"No variation is faster than the base, {_step(base)}."]
    return [f"Shortest step: {best.run.label}, {figures}."]


def _replanned_base(others: Sequence[Outcome]) -> list[str]:
    """What planning the unchanged scenario again gains, which re-planned variations gain too."""
    again = next((each for each in others if each.run.replan and not each.run.changed), None)
    variations = [each for each in others if each.run.replan and each.run.changed and _fits(each.report)]
    if again is None or again.report is None or not variations or "step_time_s" not in again.report:
        return []
    base, best = again.report, min(variations, key=lambda each: (each.report or {})["step_time_s"])
    if any(_other_batch(each.report or {}, base) for each in variations):
        return []
    change = _change(best.report, base, "step_time_s")
    told = "no variation is faster than that"
    if change <= -_even():
        told = f"{best.run.label} is {percent(-change)} below that"
    return [f"Re-planning the base alone gives {seconds(base['step_time_s'])}; {told}."]


def _most_tokens(base: Mapping[str, Any], fit: Sequence[Outcome]) -> list[str]:
    """The most tokens a second and GPU, where steps of different batches or devices are compared."""
    if not fit:
        return []
    best = max(fit, key=lambda each: (each.report or {})[TOKENS])
    report = best.report or {}
    change = _change(report, base, TOKENS)
    figures = (
        f"{report[TOKENS]:,.0f} tok/s/GPU against {base[TOKENS]:,.0f} of the base "
        f"({signed_percent(change)}{_usd(report, base)}), step {_step(report)} against {_step(base)}"
    )
    if len(fit) == 1:
        return [f"{best.run.label}: {figures}."]
    if change < _even():
        return [f"No variation makes more tok/s/GPU than the base, {base[TOKENS]:,.0f}, step {_step(base)}."]
    return [f"Most tok/s/GPU: {best.run.label}, {figures}."]


def _best_run(base: Mapping[str, Any], fit: Sequence[Outcome]) -> list[str]:
    """The run of weeks that ends first."""
    if not fit:
        return []
    best = min(fit, key=lambda each: band_of((each.report or {})["run"]).middle)
    words = f"{_run_words((best.report or {})['run'])} against {_run_words(base['run'])} of the base"
    return [f"{best.run.label}: {words}." if len(fit) == 1 else f"Ends first: {best.run.label}, {words}."]


def _run_words(run: Mapping[str, Any]) -> str:
    days = band_of(run)
    usd = "" if run["usd"] is None else f", {in_proportion(run['usd'], days).middle_words()} $"
    return f"{days.words('d')}{usd}"


def _step(report: Mapping[str, Any]) -> str:
    half = report.get("step_time_uncertainty")
    return seconds(report["step_time_s"]) + ("" if half is None else f" ± {percent(half, 0)}")


def _usd(report: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    key = "usd_per_million_tokens"
    ours, theirs = report.get(key), base.get(key)
    return f"; {significant(ours)} against {significant(theirs)} $/Mtok" if ours and theirs else ""


def _change(report: Mapping[str, Any] | None, base: Mapping[str, Any], key: str) -> float:
    return (report or {})[key] / base[key] - 1.0 if base.get(key) else 0.0


def _named(outcomes: Sequence[Outcome]) -> str:
    labels = [each.run.label for each in outcomes]
    more = [f"and {len(labels) - NAMED} more"] * (len(labels) > NAMED)
    return ", ".join(labels[:NAMED] + more)


def _not_run(outcomes: Sequence[Outcome]) -> list[str]:
    """Variations that need more memory than there is, and those without an answer."""
    too_large = [each for each in outcomes if each.report is not None and not _fits(each.report)]
    refused = [each for each in outcomes if each.report is None]
    words = []
    if too_large:
        words.append(f"{_named(too_large)}: {'do' if len(too_large) > 1 else 'does'} not fit the memory.")
    if refused:
        words.append(f"{_named(refused)}: cannot run, reasons below.")
    return words


def servers_verdict(outcomes: Sequence[Outcome]) -> str:
    """Targets met and missed, the cheapest and the quickest deployment, and those without a difference."""
    base, *others = outcomes
    ran = [each for each in others if each.report is not None]
    if base.report is None or not ran:
        return ""
    if len(ran) == 1:
        lines = [_one_server(ran[0], base.report)]
    else:
        met = [each for each in (base, *ran) if _meets(each) and _same_load(each, base)]
        lines = _targets(base, ran)
        lines += _least(
            met,
            base,
            ("dollars_per_million",),
            "Cheapest",
            lambda usd: f"{significant(usd)} $/Mtok of output",
        )
        lines += _least(met, base, ("tpot_s", "p50"), "Lowest TPOT", seconds)
        same = [each for each in ran if _told(each.report, base.report) is False]
        lines += [f"{_named(same)}: no difference that the seeds can tell."] if same else []
    return "\n".join(fitted([], lines + _not_run(others)))


def _meets(outcome: Outcome) -> bool:
    """Whether a deployment is stable and meets its targets, if it has any."""
    report = outcome.report
    if report is None or report["sustainable_rate"] is not None:
        return False
    slo = outcome.run.data["workload"].get("slo") or {}
    return report["slo_share"] is None or report["slo_share"] >= slo.get("share", SHARE)


def _same_load(outcome: Outcome, base: Outcome) -> bool:
    """Whether a variation serves the base's requests; one with others is no deployment to choose."""
    return all(outcome.run.data["workload"].get(key) == base.run.data["workload"].get(key) for key in DEMAND)


def _targets(base: Outcome, ran: Sequence[Outcome]) -> list[str]:
    """Which deployments miss their targets."""
    missed = [each for each in (base, *ran) if not _meets(each)]
    if (base.report or {})["slo_share"] is None:
        overloaded = f"{_named(missed)}: overloaded." if missed else ""
        return [overloaded] if overloaded else []
    return [f"Targets missed by {_named(missed)}." if missed else "All meet the targets."]


def _least(
    met: Sequence[Outcome],
    base: Outcome,
    path: Sequence[str],
    words: str,
    unit: Callable[[float], str],
) -> list[str]:
    """The deployment with the least of a figure among those that meet the targets."""

    def value(outcome: Outcome) -> float | None:
        return read(outcome.report or {}, path)

    candidates = [each for each in met if value(each)]
    if not candidates:
        return []
    best = min(candidates, key=lambda each: value(each) or 0.0)
    if best is base:
        return [f"{words}: the base, {unit(value(base) or 0.0)}."]
    against = f" against {unit(old)} of the base" if (old := value(base)) else ""
    return [f"{words}: {best.run.label}, {unit(value(best) or 0.0)}{against}."]


def _one_server(outcome: Outcome, base: Mapping[str, Any]) -> str:
    """Latencies, throughput and cost of the only variation beside the base's."""
    report, label = outcome.report or {}, outcome.run.label
    if report["sustainable_rate"] is not None:
        words = overload_words(report["arrival_rate"], report["sustainable_rate"])
        return f"{label}: overloaded, {words}; latencies have no steady figure."
    if _told(report, base) is False:
        return f"{label}: no difference that the seeds can tell."
    parts = []
    for name, path in FIGURES.items():
        if name not in ("TTFT p50", "TPOT p50", "tok/s"):
            continue
        ours, theirs = (read(each, path) for each in (report, base))
        if ours and theirs:
            unit = seconds if name != "tok/s" else "{:,.0f}".format
            told = difference(report, base, name)
            doubt = ", no difference that the seeds can tell" if told and not told.tells else ""
            parts.append(
                f"{name} {unit(ours)} against {unit(theirs)} ({signed_percent(ours / theirs - 1)}{doubt})"
            )
    ours, theirs = (significant(each["dollars_per_million"]) for each in (report, base))
    parts.append(f"{ours} against {theirs} $/Mtok")
    verdict = "" if report["slo_share"] is None else f"; targets {'met' if _meets(outcome) else 'missed'}"
    return f"{label}: {', '.join(parts)}{verdict}."


def _told(report: Mapping[str, Any] | None, base: Mapping[str, Any]) -> bool | None:
    """Whether the seeds tell any figure from the base's; None without seeds."""
    paired = [difference(report or {}, base, name) for name in FIGURES if "by_seed" in base]
    told = [each.tells for each in paired if each is not None]
    return any(told) if told else None
