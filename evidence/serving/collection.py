"""Collections of measured rows as `collections.yaml` describes them, and the reader of all their rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field

from core.loading import Strict, build, read_mapping
from evidence.serving.case import MeasuredRow, ServingCase, Setup, setup
from evidence.serving.served_run import figures_of
from meshwright.validation.rows import SkippedRow

FILE = Path(__file__).with_name("collections.yaml")


class Skip(Strict):
    """Rows that are not predicted."""

    where: dict[str, str]
    """Pattern by column; all must be found in the row."""
    reason: str
    """May name columns in braces."""


class Omission(Strict):
    """Measured columns that are not compared in some rows."""

    where: dict[str, str]
    columns: list[str]


class Collection(Strict):
    """How the rows of one kind of file are read."""

    source: str
    needs: list[str]
    """Columns that tell the kind of file."""
    module: str = ""
    """Module of questions and predictions; that of the collection's name by default."""
    measured: list[str] = Field(default_factory=list)
    """Columns that are compared with the prediction."""
    figures: dict[str, str] = Field(default_factory=dict)
    """Predicted figure by measured column, where their names differ."""
    preset: str = ""
    """Engine of all rows, whatever they say."""
    engine: str = ""
    """Engine of rows that name none."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Version of rows that state none, by the letters of the engine's name, or for any."""
    precision: str = "weight_precision"
    """Column of the weights' number format."""
    format: str = ""
    """Number format of rows that state none."""
    degrees: dict[str, str] = Field(default_factory=dict)
    """Columns of the parallel degrees."""
    numbers: dict[str, str] = Field(default_factory=dict)
    """Columns of the question's numbers; rows without one of them are skipped."""
    skips: list[Skip] = Field(default_factory=list)
    omits: list[Omission] = Field(default_factory=list)
    harmless: list[str] = Field(default_factory=list)
    """Flags of rows that count as the others do."""
    repeats: str = ""
    """Name of a row's configuration, which repeated rows share, from columns, numbers and {replica}."""

    def replica(self, row: MeasuredRow, degrees: Mapping[str, int] | None = None) -> Setup:
        """The replica that a row describes.

        Args:
            row: measured run.
            degrees: where they do not stand in columns.

        Raises:
            SkippedRow: the row leaves it open, or names something unknown.
        """
        engine = self.preset or row.text("engine", self.engine)
        letters = re.sub(r"[^a-z]", "", engine.lower())
        default = self.versions.get(letters) or self.versions.get("any", "")
        if degrees is None:
            degrees = {name: row.count(column) for name, column in self.degrees.items()}
        version, precision = row.text("engine_version", default), row.text(self.precision, self.format)
        return setup(row, engine, version, degrees, precision)

    def values(self, row: MeasuredRow) -> dict[str, float]:
        """The numbers of a row's question.

        Raises:
            SkippedRow: the row does not state one of them.
        """
        return {name: row.need(column) for name, column in self.numbers.items()}


@cache
def collections() -> dict[str, Collection]:
    """Collections by name."""
    return {name: build(Collection, data, f"{FILE}: {name}") for name, data in read_mapping(FILE).items()}


@cache
def module_of(name: str) -> ModuleType:
    """The module of a collection: `question` of a row, perhaps `details` of the row's case, and `predict`, or
    `figures` of a run where they are not those of `figures_of`."""
    return import_module(f"{__package__}.{collections()[name].module or name}")


def predictions(name: str, questions: Sequence[Any]) -> list[dict[str, float]]:
    """Predicted figures of rows of a collection whose questions have one key."""
    module = module_of(name)
    if hasattr(module, "predict"):
        return module.predict(questions)
    return [getattr(module, "figures", figures_of)(question.run()) for question in questions]


def read_case(name: str, row: MeasuredRow, file: str) -> ServingCase:
    """The case of a row of a collection.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    collection, module = collections()[name], module_of(name)
    for skip in collection.skips:
        if _matches(row, skip.where):
            raise SkippedRow(skip.reason.format_map(row.values))
    question = module.question(row, collection)
    omitted = {column for rule in collection.omits if _matches(row, rule.where) for column in rule.columns}
    serving, flag = getattr(question, "serving", None), row.text("flag")
    for harmless in collection.harmless:
        flag = flag.replace(harmless, "")
    words = defaultdict(str, {**row.values, **vars(question), "replica": serving and serving.key})
    case = ServingCase(
        case_id=row.name,
        file=file,
        engine=serving.engine.name if serving else row.text("engine"),
        gpu=row.text("gpu"),
        measured=row.measured(*(column for column in collection.measured if column not in omitted)),
        flagged=bool(flag.strip()),
        group=collection.repeats.format_map(words),
        question=question,
    )
    return replace(case, **module.details(row, case)) if hasattr(module, "details") else case


def _matches(row: MeasuredRow, where: Mapping[str, str]) -> bool:
    return all(re.search(pattern, row.text(column), re.IGNORECASE) for column, pattern in where.items())
