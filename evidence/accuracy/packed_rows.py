"""Measured fine-tunes on packed documents, beside predictions with documents of some lengths.

    python -m benchmarks.packed_rows TRAINING.csv...

Sources say that rows are packed, and no lengths (`packed` in ``sources.yaml``), so these rows count in no
figure. Each line has the errors of a source's steps with rows of one document, and of documents of one
length that fill them: what attention and its masks can explain. Rows are never printed one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from evidence.accuracy.errors import HEAD, Spread
from evidence.command import command
from evidence.training.parts import named, source_of, sources
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.ledger import predicted
from simulator.workload import Training

DOCUMENTS = (None, 4096, 1024, 256)
"""Tokens of a document; None: a document a row."""


def packed_cases(path: Path) -> list[TrainingCase]:
    """Cases of a file whose sources say that documents are packed."""
    packed = [each for each in sources().no_figure if each.reason.startswith("packed")]
    names = named(path, packed)
    return [case for case in read_cases(path)[0] if case.case_id in names]


def with_documents(case: TrainingCase, tokens: int | None) -> TrainingCase:
    """A case whose rows are filled with documents of some tokens."""
    training = case.setting.training
    if tokens is None or tokens >= training.seq_len:
        return case
    stated = training.model_dump(mode="json", exclude_defaults=True)
    law = {"lengths": {"kind": "fixed", "tokens": tokens}, "packing": "pack"}
    packed = Training.model_validate({**stated, **law})
    return replace(case, setting=replace(case.setting, training=packed))


def errors(cases: list[TrainingCase], tokens: int | None) -> Iterator[float]:
    """Relative errors of steps with documents of some tokens."""
    for entry in predicted([with_documents(case, tokens) for case in cases]):
        if (error := entry.relative_error) is not None:
            yield error


@command
def main(files: Sequence[Path]) -> None:
    by_source: dict[str, list[TrainingCase]] = defaultdict(list)
    for path in files:
        for case in packed_cases(path):
            by_source[source_of(case.case_id)].append(case)
    print(f"{'source, tokens of a document':<32} {HEAD}")
    for source, cases in by_source.items():
        for tokens in DOCUMENTS:
            of_source = list(errors(cases, tokens))
            name = f"{source}, {'the row' if tokens is None else f'{tokens:,}'}"
            print(f"{name:<32} {Spread.of(of_source).words() if of_source else 'no row can be predicted'}")
