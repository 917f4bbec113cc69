"""The laws: each module of a folder beside this one is a law.

A law's module has a docstring (its statement), ``NUMBER`` (its number in docs/invariants.md), ``QUESTIONS``
(a hypothesis strategy of mappings that YAML can hold) and ``check(question)``, which raises where the law is
broken. An `InputError` or `InfeasibleError` of ``check`` means that the question has no answer, and decides
nothing. ``SEARCHES = True`` marks laws whose questions take a search: a tenth as many are asked. ``CI`` is
the number of questions under pytest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hypothesis.strategies import SearchStrategy

from tests.laws.questions import Question

FOLDER = Path(__file__).parent
CI_PREDICTIONS = 20
CI_SEARCHES = 1


@dataclass(frozen=True)
class Law:
    """A property of every answer, whatever the physics is."""

    number: int
    name: str
    path: Path
    statement: str
    questions: SearchStrategy[Question]
    check: Callable[[Question], None]
    searches: bool
    ci: int
    """Questions asked under pytest."""


def _law(path: Path) -> Law:
    module = importlib.import_module(f"tests.laws.{path.parent.name}.{path.stem}")
    searches = getattr(module, "SEARCHES", False)
    return Law(
        module.NUMBER,
        path.stem.replace("_", "-"),
        path,
        (module.__doc__ or "").strip(),
        module.QUESTIONS,
        module.check,
        searches,
        getattr(module, "CI", CI_SEARCHES if searches else CI_PREDICTIONS),
    )


def laws() -> dict[str, Law]:
    """All laws by name, in the order of their numbers."""
    read = [_law(path) for path in sorted(FOLDER.glob("*/*.py"))]
    return {law.name: law for law in sorted(read, key=lambda law: law.number)}
