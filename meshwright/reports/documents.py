"""Steps over documents of unequal length: padding, and how late the slowest replica is."""

from __future__ import annotations

from typing import Any

from meshwright.reports.units import counted, percent, seconds
from planner.training.prediction import Prediction
from simulator.packing.costs import DegreeCosts
from simulator.packing.grouped_steps import GroupedStep
from simulator.training.unequal import late_step


def describe_documents(prediction: Prediction, index: int) -> dict[str, Any]:
    """The documents of one plan's step, with documented keys; nothing where all sequences are equal."""
    training = prediction.setting.training
    if training.drawn is None:
        return {}
    plan = prediction.plans.plan(index)
    late = late_step(prediction.setting, prediction.plans, prediction.step.seconds)
    return {
        "documents": {
            "packing": training.packing or "pack",
            "tokens": training.tokens,
            "attended_tokens": training.attended,
            "padding_share": training.drawn.padding(plan.micro_batch),
            "step_time_p95_s": float(late[index]),
            **_groups(prediction.setting.grouped(plan)),
        }
    }


def _groups(grouped: tuple[DegreeCosts, GroupedStep] | None) -> dict[str, Any]:
    """Shares of tokens by the degree of their group, and the gap to the bound; nothing of equal groups."""
    if grouped is None:
        return {}
    costs, step = grouped
    degrees = zip(costs.degrees.astype(int).tolist(), step.shares.tolist(), strict=True)
    return {"tokens_by_context": {str(degree): share for degree, share in degrees if share}, "gap": step.gap}


def documents_words(prediction: Prediction, index: int) -> dict[str, str]:
    """The row of a table on the documents of a step."""
    facts = describe_documents(prediction, index).get("documents")
    if facts is None:
        return {}
    words = (
        f"{facts['packing']}: {percent(facts['padding_share'])} padding, attention as of equal documents of "
        f"{counted(round(facts['attended_tokens']))} tokens; "
        f"one step in 20 takes {seconds(facts['step_time_p95_s'])}"
    )
    if "gap" in facts:
        shares = ", ".join(f"{percent(share)} on {n}" for n, share in facts["tokens_by_context"].items())
        words += f"; tokens by context ranks: {shares}; bound {percent(facts['gap'])} below"
    return {"documents": words}
