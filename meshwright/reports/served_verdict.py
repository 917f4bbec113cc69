"""A serving run in two lines: whether it meets its targets, its latencies with their errors, and its cost."""

from __future__ import annotations

from meshwright.reports.serving_evidence import run_errors, within
from meshwright.reports.tables import fitted
from meshwright.reports.units import per_second, percent, seconds, significant
from simulator.serving.metrics import Latency
from simulator.serving.result import ServingResult

SHOWN = (("ttft", "p90"), ("tpot", "mean"))
"""Latencies that the verdict states, as the first lines of ``plan serve`` do."""

BEHIND = 0.02
"""Share of arrivals that a short run has not completed, from which the verdict states both rates."""


def served_headline(result: ServingResult) -> str:
    """What the deployment carries and how soon; that it is overloaded where its queue grows without end."""
    metrics, errors = result.metrics, run_errors(result)
    gpus = sum(count for _, count in result.setting.occupied)
    where = "1 GPU" if gpus == 1 else f"{gpus:,} GPUs"
    if metrics.sustainable_rate is not None:
        words = overload_words(metrics.arrival_rate, metrics.sustainable_rate)
        more = ["The queue grows without end, so latencies have no steady figure."]
        return "\n".join(fitted([f"Overloaded on {where}: {words}"], more))
    behind = metrics.arrival_rate > (1 + BEHIND) * metrics.request_rate
    of = f" of {per_second(metrics.arrival_rate)} that arrive" if behind else ""
    parts = [f"{per_second(metrics.request_rate)} req/s{of} completed on {where}"]
    for name, point in SHOWN:
        if isinstance(latency := metrics.latencies.get(name), Latency):
            value = within(seconds(getattr(latency, point)), errors.get(name))
            parts.append(f"{name.upper()} {value} ({point})")
    if metrics.dollars_per_million:
        parts.append(f"{significant(metrics.dollars_per_million)} $/Mtok of output")
    return "\n".join(fitted(parts, _targets(result)))


def overload_words(arrive: float, sustainable: float) -> str:
    """Requests a second that arrive and that are sustained, unless the run ended before that can be told."""
    if sustainable >= arrive:
        return f"{per_second(arrive)} req/s arrive, more than end; the run is too short to tell how many can"
    return f"{per_second(arrive)} req/s arrive, {per_second(sustainable)} req/s are sustainable"


def _targets(result: ServingResult) -> list[str]:
    """Whether the targets are met; nothing without targets."""
    metrics, slo = result.metrics, result.setting.serving.slo
    if metrics.slo_share is None or metrics.goodput is None:
        return []
    verdict = "met" if metrics.slo_share >= slo.share else "missed"
    return [
        f"Targets {verdict}: {percent(metrics.slo_share)} of requests lie within them, "
        f"{percent(slo.share, 0)} must ({per_second(metrics.goodput)} req/s of goodput)."
    ]
