"""Measured runs behind plans, in words and with documented keys."""

from __future__ import annotations

from typing import Any

from meshwright.reports.units import percent
from planner.training.confidence import Confidence
from planner.training.measured_runs import MeasuredRun, NearError, PlanEvidence, Promise

NAMED_MODELS = 3
"""Models of near runs that are named."""
UNPROVEN = "unproven"
"""Mark of a plan that uses a mechanism without a measured run, that no run is near, or whose near runs took
far longer than predicted."""


def describe_evidence(confidence: Confidence | None, index: int) -> dict[str, Any] | None:
    """Measured runs behind a plan, with documented keys; None where the engine timed it."""
    if confidence is None:
        return None
    evidence = confidence.evidence[index]
    nearest = evidence.nearest
    return {
        "runs": evidence.fewest,
        "runs_with_all": evidence.together,
        "mechanisms": [{"mechanism": name, "runs": runs} for name, runs in evidence.runs.items()],
        "unproven": list(evidence.unproven),
        "near_runs": evidence.near_error
        and {
            "runs": evidence.near_error.runs,
            "error": evidence.near_error.error,
        },
        "over_fastest_near": evidence.promise
        and {
            "gain": evidence.promise.gain,
            "mfu_causal": evidence.promise.run.utilisation,
            "run": run_keys(evidence.promise.run),
        },
        "nearest": nearest and run_keys(nearest),
    }


def run_keys(run: MeasuredRun) -> dict[str, Any]:
    """A measured run, with documented keys."""
    return {
        "case_id": run.case,
        "source": run.source,
        "model": run.model,
        "gpus": run.gpus,
        "device": run.device,
        "framework": run.framework,
    }


def counted_runs(evidence: PlanEvidence) -> str:
    """Measured runs of the mechanism with the fewest, in words."""
    return "none" if not evidence.fewest else f"{evidence.fewest} run{'s' if evidence.fewest > 1 else ''}"


def short_runs(confidence: Confidence | None) -> str:
    """Measured runs of the first plan's rarest mechanism, in a few words; empty where the engine timed it."""
    if confidence is None or not confidence.evidence:
        return ""
    evidence = confidence.evidence[0]
    if not evidence.fewest:
        return "no measured run"
    words = f"{evidence.fewest} measured run{'s' * (evidence.fewest > 1)}"
    return f"{UNPROVEN}, {words} of its parts" if evidence.unproven or evidence.far_from_runs else words


def evidence_words(confidence: Confidence | None, index: int) -> dict[str, str]:
    """Measured runs behind a plan, in one line."""
    if confidence is None:
        return {}
    evidence = confidence.evidence[index]
    if evidence.nowhere:
        return {"evidence": "no measured run of this code base on this device family"}
    lacking = f"{UNPROVEN}, no measured run: {', '.join(evidence.unproven)}" if evidence.unproven else ""
    words = [lacking or f"at least {counted_runs(evidence)} of each mechanism"]
    if evidence.nearest is not None:
        words.append(f"nearest {run_words(evidence.nearest)}")
    if evidence.far_from_runs:
        words.append("no run trained experts of about its widths in its number format")
    if evidence.near_error is not None:
        words.append(near_words(evidence.near_error))
    if evidence.promise is not None and evidence.promise.beyond:
        words.append(f"{promise_words(evidence.promise)}: not measured")
    return {"evidence": "; ".join(words)}


def near_words(runs: NearError) -> str:
    """How runs near a plan were predicted, in words."""
    size = percent(abs(runs.error), 0)
    off = (
        f"{size} {'longer' if runs.error > 0 else 'less'} than predicted" if size != "0 %" else "as predicted"
    )
    return f"{runs.runs} runs near it ({', '.join(runs.models[:NAMED_MODELS])}) took {off} in the median"


def promise_words(promise: Promise) -> str:
    """What a plan promises beside the fastest run near it, in words."""
    run = promise.run
    reached = f"{percent(run.utilisation, 0)}, {run_words(run)}"
    return f"{promise.gain + 1:.2f} times the causal MFU of the fastest run near it ({reached})"


def run_words(run: MeasuredRun) -> str:
    """A measured run in words."""
    return f"{run.case} ({run.model} on {run.gpus:,} {run.device}, {run.framework})"
