"""The shipped scenarios: what each asks, and what the answer was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from meshwright.questions.scenarios import question_of, scenario_path, shipped_scenarios
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts


def _name(path: Path) -> str:
    return next((name for name, shipped in shipped_scenarios().items() if shipped == path), str(path))


def _brief(path: Path) -> dict[str, Any]:
    return {"name": _name(path), "question": question_of(path)}


def _tables(path: Path) -> list[Table]:
    return [facts({"file": str(path), "question": question_of(path)}, _name(path))]


KIND = Kind(
    names=lambda: list(shipped_scenarios()),
    get=scenario_path,
    brief=_brief,
    more=lambda path: {"text": path.read_text(encoding="utf-8")},
    columns=("scenario", "question and answer"),
    row=lambda path: [_name(path), question_of(path)],
    tables=_tables,
    text_columns=2,
)
