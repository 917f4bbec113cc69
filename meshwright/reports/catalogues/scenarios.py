"""The shipped scenarios: what each asks, and what the answer was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshwright.questions.scenarios import question_of, scenario_path, shipped_scenarios
from meshwright.reports.catalogues.kind import Kind


def _name(path: Path) -> str:
    return next((name for name, shipped in shipped_scenarios().items() if shipped == path), str(path))


def _brief(path: Path) -> dict[str, Any]:
    return {"name": _name(path), "question": question_of(path)}


KIND = Kind(
    names=lambda: list(shipped_scenarios()),
    get=scenario_path,
    brief=_brief,
    more=lambda path: {"text": path.read_text(encoding="utf-8")},
    cells={"scenario": _name, "question and answer": question_of},
    about=lambda path: {"file": str(path), "question": question_of(path)},
    text_columns=2,
)
