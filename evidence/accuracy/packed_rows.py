"""Measured fine-tunes on packed documents, beside predictions with documents of some lengths.

    python -m benchmarks.packed_rows TRAINING.csv...

Sources say that rows are packed, and no lengths (`packed` in ``sources.yaml``), so these rows count in no
figure. Each line has the errors of a source's steps with rows of one document, and of documents of one
length that fill them: what attention and its masks can explain. The last line of a source has the rows
whose dataset's lengths are published elsewhere (``document_lengths``). Rows are never printed one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.accuracy.errors import HEAD, Spread
from evidence.command import command
from evidence.training.parts import named, source_of, sources
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.ledger import predicted
from simulator.workload import Training

DOCUMENTS = (None, 4096, 1024, 256)
"""Tokens of a document; None: a document a row."""
PACKING = "concat"
"""ms-swift pads no packed row (swift/template/base.py: packing_row)."""


Law = dict[str, Any]


def packed_cases(path: Path) -> list[TrainingCase]:
    """Cases of a file whose sources say that documents are packed."""
    packed = [each for each in sources().no_figure if each.reason.startswith("packed")]
    names = named(path, packed)
    return [case for case in read_cases(path)[0] if case.case_id in names]


def published_laws(path: Path) -> dict[str, Law]:
    """Published lengths of the documents of a file's cases, by case."""
    return {
        case: rows.lengths.model_dump(mode="json")
        for rows in sources().document_lengths
        for case in named(path, [rows])
    }


def with_documents(case: TrainingCase, law: Law | None) -> TrainingCase:
    """A case whose rows are filled with documents of some lengths; None: a document a row."""
    training = case.setting.training
    if law is None or law.get("tokens", 0) >= training.seq_len:
        return case
    stated = training.model_dump(mode="json", exclude_defaults=True)
    packed = Training.model_validate({**stated, "lengths": law, "packing": PACKING})
    return replace(case, setting=replace(case.setting, training=packed))


def spread(cases: Iterable[TrainingCase]) -> str:
    """Median, 90th percentile and bias of relative errors of steps."""
    errors = [entry.relative_error for entry in predicted(list(cases))]
    stated = [error for error in errors if error is not None]
    return Spread.of(stated).words() if stated else "no row can be predicted"


@command
def main(files: Sequence[Path]) -> None:
    by_source: dict[str, list[TrainingCase]] = defaultdict(list)
    laws: dict[str, Law] = {}
    for path in files:
        laws |= published_laws(path)
        for case in packed_cases(path):
            by_source[source_of(case.case_id)].append(case)
    print(f"{'source, tokens of a document':<32} {HEAD}")
    for source, cases in by_source.items():
        for tokens in DOCUMENTS:
            law = None if tokens is None else {"kind": "fixed", "tokens": tokens}
            name = f"{source}, {'the row' if tokens is None else f'{tokens:,}'}"
            print(f"{name:<32} {spread(with_documents(case, law) for case in cases)}")
        with_law = [case for case in cases if case.case_id in laws]
        if with_law:
            name = f"{source}, as its datasets, {len(with_law)}"
            print(f"{name:<32} {spread(with_documents(case, laws[case.case_id]) for case in with_law)}")
