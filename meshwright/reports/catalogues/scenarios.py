"""The shipped scenarios: what each asks, and what the answer was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshwright.questions.scenarios import question_of, read_keys, scenario_path, shipped_scenarios
from meshwright.reports.catalogues.kind import Kind

TITLE = 100
"""Characters of a title in the list."""
KINDS = {"rl": "post-training", "graph": "graphs", "tables": "recommendation"}
"""Words for kinds of workloads that are not their own."""


def _name(path: Path) -> str:
    return next((name for name, shipped in shipped_scenarios().items() if shipped == path), str(path))


def _brief(path: Path) -> dict[str, Any]:
    return {"name": _name(path), "question": question_of(path)}


def _kind(path: Path) -> str:
    """What is simulated: training, a run of weeks, serving and so on."""
    keys = read_keys(path)
    workload = keys.get("workload") or {}
    kind = str(workload.get("kind", "run" if "run" in keys else "training"))
    return KINDS.get(kind, kind)


def _title(path: Path) -> str:
    """The title, or else the first sentence of the question."""
    stated = str(read_keys(path).get("title") or question_of(path).partition(". ")[0])
    return stated if len(stated) <= TITLE else f"{stated[: TITLE - 4]} ..."


KIND = Kind(
    names=lambda: list(shipped_scenarios()),
    get=scenario_path,
    brief=_brief,
    more=lambda path: {"text": path.read_text(encoding="utf-8")},
    cells={"scenario": _name, "kind": _kind, "what it asks": _title},
    about=lambda path: {"file": str(path), "question": question_of(path)},
    text_columns=3,
    folder="papers",
    group=_kind,
)
