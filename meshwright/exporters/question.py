"""Plans of the saved JSON of ``plan`` as scenarios, for exporters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from core.errors import InputError, shown
from core.loading import exists
from core.parsing import read_text
from simulator.workload import STEP_KEYS, Training

MOST_BYTES = 256 * 2**20
"""Of a saved search; a plan has about 10 kB."""
KEPT = ("model", "cluster", "gpus", "framework", "allow")


def saved_search(reference: str) -> dict[str, Any] | None:
    """The data of a saved search; None where the reference is no such file.

    Raises:
        InputError: JSON that is cut off.
    """
    path = Path(reference)
    if path.suffix != ".json" or not exists(path) or not path.is_file():
        return None
    try:
        data = json.loads(read_text(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits
        raise InputError(f"not valid JSON, perhaps cut off ({error})", reference) from None
    searched = isinstance(data, dict) and "question" in data and ("plans" in data or "deployments" in data)
    return data if searched else None


def scenario_of_search(data: Mapping[str, Any], rank: int, where: str) -> dict[str, Any]:
    """One plan of a saved search as a scenario's mapping.

    Raises:
        InputError: no plan of that rank.
    """
    serving = "deployments" in data
    ranked = data["deployments" if serving else "plans"]
    if not isinstance(ranked, list) or not 1 <= rank <= len(ranked):
        count = len(ranked) if isinstance(ranked, list) else 0
        raise InputError(f"{where} holds {count} plans, asked for rank {rank}", "--rank")
    question, plan = data["question"], ranked[rank - 1]
    if not isinstance(question, Mapping) or not isinstance(plan, Mapping):
        raise InputError("is not the output of `meshwright plan --json`", where)
    scenario = {key: question[key] for key in KEPT if key in question}
    if serving:
        return scenario | _served(question, plan)
    workload = {key: question[key] for key in Training.model_fields if key in question}
    return scenario | {"workload": {**dict.fromkeys(STEP_KEYS), **workload}, "plan": plan.get("plan")}


def _tokens(question: Mapping[str, Any], key: str) -> int:
    """A mean number of tokens, rounded; 1 where there is none.

    Raises:
        InputError: not a number.
    """
    value = question.get(key) or 1
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer and not (isinstance(value, float) and isfinite(value)):
        raise InputError(f"a number is needed, found {shown(value)}", f"question.{key}")
    return max(round(value), 1)


def _served(question: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Workload and deployment of a found deployment."""
    rate = plan.get("rate") or question.get("rate")
    slo = {key: question[key] for key in ("ttft", "tpot", "e2e") if question.get(key) is not None}
    workload: dict[str, Any] = {
        "kind": "serving",
        "arrivals": {"kind": "poisson", "rate": rate} if rate else {"kind": "burst"},
        "input": {"kind": "fixed", "tokens": _tokens(question, "prompt_tokens")},
        "output": {"kind": "fixed", "tokens": _tokens(question, "output_tokens")},
    }
    if slo:
        workload["slo"] = slo
    return {"gpus": plan.get("gpus"), "workload": workload, "deployment": plan.get("deployment")}
