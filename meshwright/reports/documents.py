"""Steps over documents of unequal length: padding, and how late the slowest replica is."""

from __future__ import annotations

from typing import Any

from meshwright.reports.units import counted, percent, seconds
from planner.prediction import Prediction
from simulator.training.unequal import late_step


def describe_documents(prediction: Prediction, index: int) -> dict[str, Any]:
    """The documents of one plan's step, with documented keys; nothing where all sequences are equal."""
    training = prediction.setting.training
    if training.drawn is None:
        return {}
    late = late_step(prediction.setting, prediction.plans, prediction.step.seconds)
    return {
        "documents": {
            "packing": training.packing or "pack",
            "tokens": training.tokens,
            "attended_tokens": training.attended,
            "padding_share": training.drawn.padding(prediction.plans.plan(index).micro_batch),
            "step_time_p95_s": float(late[index]),
        }
    }


def documents_words(prediction: Prediction, index: int) -> dict[str, str]:
    """The row of a table on the documents of a step."""
    known = describe_documents(prediction, index).get("documents")
    if known is None:
        return {}
    words = (
        f"{known['packing']}: {percent(known['padding_share'])} padding, attention as of equal documents of "
        f"{counted(round(known['attended_tokens']))} tokens; "
        f"one step in 20 takes {seconds(known['step_time_p95_s'])}"
    )
    return {"documents": words}
