"""Parts of a collection of published runs: chosen on, left out, kept apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
from pydantic import Field

from core.cache import read_shipped
from core.loading import Strict, build
from meshwright.validation.cases import TrainingCase
from meshwright.validation.ledger import ErrorSummary, Ledger, PredictedCase
from meshwright.validation.rows import PublishedRow, matches, read_rows
from simulator.frameworks.code_bases import code_base
from simulator.lengths import AnyLengths

SOURCES_FILE = Path(__file__).with_name("sources.yaml")

CHOSEN, LEFT_OUT, APART = "constants chosen on", "left out", "kept apart"
PARTS = (CHOSEN, LEFT_OUT, APART)

FEWEST_ROWS = 6
"""Rows of the smallest source that is divided; smaller ones go whole to one side."""

LONG = 32_768
"""Tokens of a sequence from which on a run is one of long context."""

MANY = 4_096
"""Devices above which a run is one of many."""


class NamedRows(Strict):
    """Rows, and why they are named."""

    where: dict[str, str] = Field(description="patterns by column")
    reason: str


class LackedLevers(NamedRows):
    """Rows whose release lacks values of levers that a later one offers."""

    lacks: dict[str, list[str]] = Field(description="values by plan field")


class DocumentRows(NamedRows):
    """Rows that are packed from a dataset whose lengths are published."""

    lengths: AnyLengths = Field(description="tokens of the dataset's documents")


class Sources(Strict):
    """Facts about the sources of published runs."""

    chosen_on: dict[str, str] = Field(description="constants chosen on whole steps, by source")
    same_as: dict[str, str] = Field(description="sources above, by another name of theirs")
    opened: dict[str, str] = Field(description="sources kept apart until somebody read them, and when")
    no_figure: list[NamedRows] = Field(description="rows that count in no figure")
    given_plans: list[NamedRows] = Field(
        description="rows whose layout their source did not choose for speed"
    )
    document_lengths: list[DocumentRows] = Field(description="rows whose dataset's lengths are published")
    release_lacks: list[LackedLevers] = Field(description="levers that came after the release of some rows")


@cache
def sources() -> Sources:
    """The shipped facts."""
    return build(Sources, read_shipped(SOURCES_FILE), str(SOURCES_FILE))


def named(path: Path, rules: Sequence[NamedRows]) -> set[str]:
    """The cases of a file that some rules name.

    Raises:
        InputError: the file is not readable.
    """
    rows = [PublishedRow(values, str(path)) for values in read_rows(path)]
    return {row.text("case_id") for row in rows if any(matches(row, rule.where) for rule in rules)}


def lacked_levers(path: Path) -> dict[str, dict[str, list[str]]]:
    """Values of levers that the releases of a file's cases lacked, by case.

    Raises:
        InputError: the file is not readable.
    """
    rules = sources().release_lacks
    return {case: rule.lacks for rule in rules for case in named(path, [rule])}


def source_of(case_id: str) -> str:
    """The source of a case: the beginning of its name."""
    return case_id.split("-")[0]


def kept_apart(case_ids: Iterable[str]) -> set[str]:
    """The cases of a file that nobody reads while models are worked on: a third, by a checksum of the name.

    A source of fewer than ``FEWEST_ROWS`` rows is on one side, by a checksum of the source's name. Sources
    that were read (``opened``) are kept apart no longer.
    """
    names = list(case_ids)
    rows = Counter(source_of(name) for name in names)

    def key(name: str) -> str:
        source = source_of(name)
        return name if rows[source] >= FEWEST_ROWS else source

    apart = {name for name in names if crc32(key(name).encode()) % 3 == 0}
    return {name for name in apart if source_of(name) not in sources().opened}


@dataclass(frozen=True)
class PartFigures:
    """Figures of one class of runs in one part: step or memory errors, or a share of rows.

    ``half_width`` is the median one of the bands of these rows, ``sources`` the number of their sources.
    """

    errors: ErrorSummary | None = None
    count: int = 0
    of: int = 0
    half_width: float | None = None
    sources: int | None = None


@dataclass(frozen=True)
class PartedLedger:
    """A ledger divided into parts.

    Attributes:
        ledger: without rows that count in no figure.
        part: the part of each case, by name.
        no_figure: number of rows that count in no figure.
    """

    ledger: Ledger
    part: dict[str, str]
    no_figure: int

    def figures(self) -> dict[str, dict[str, PartFigures]]:
        """Figures by class and part."""
        figures: dict[str, dict[str, PartFigures]] = {}
        steps = [entry for entry in self.ledger.entries if entry.relative_error is not None]
        for name, inside in CLASSES.items():
            of_class = [entry for entry in steps if inside(entry.case)]
            figures[name] = {
                part: PartFigures(ErrorSummary.of(entry.relative_error for entry in entries))
                for part, entries in self._by_part(of_class).items()
            }
        by_part = self._by_part(self.ledger.entries)
        figures["peak memory"] = {
            part: PartFigures(ErrorSummary.of(entry.memory_error for entry in entries))
            for part, entries in by_part.items()
        }
        figures["refused though it ran"] = {
            part: _share(not entry.fits for entry in entries) for part, entries in by_part.items()
        }
        figures["inside the band"] = {
            part: band_figures(entries) for part, entries in self._by_part(steps).items()
        }
        skipped = Counter(self.part[case_id] for case_id, _ in self.ledger.skipped)
        figures["skipped"] = {
            part: PartFigures(count=skipped[part], of=skipped[part] + len(entries))
            for part, entries in by_part.items()
        }
        return figures

    def open_ledger(self) -> Ledger:
        """The ledger without the rows kept apart."""
        return Ledger(
            [entry for entry in self.ledger.entries if self.part[entry.case.case_id] != APART],
            [(case_id, reason) for case_id, reason in self.ledger.skipped if self.part[case_id] != APART],
        )

    def _by_part(self, entries: Sequence[PredictedCase]) -> dict[str, list[PredictedCase]]:
        return {part: [e for e in entries if self.part[e.case.case_id] == part] for part in PARTS}


def band_figures(entries: Iterable[PredictedCase]) -> PartFigures:
    """Steps inside their bands, the median half-width of these, and the sources; of steps with a band."""
    banded = [(entry, entry.uncertainty) for entry in entries if entry.uncertainty is not None]
    share = _share(abs(entry.relative_error or 0.0) <= half for entry, half in banded)
    if not banded:
        return share
    return replace(
        share,
        half_width=float(np.median([half for _, half in banded])),
        sources=len({source_of(entry.case.case_id) for entry, _ in banded}),
    )


def _share(flags: Iterable[bool]) -> PartFigures:
    values = list(flags)
    return PartFigures(count=int(np.sum(values)), of=len(values))


def _is_amd(case: TrainingCase) -> bool:
    return case.setting.cluster.device.vendor == "amd"


def _is_hybrid(case: TrainingCase) -> bool:
    return case.setting.model.linear is not None


def _is_dense(case: TrainingCase) -> bool:
    return not (_is_amd(case) or _is_hybrid(case) or case.experts)


def _is_wide(case: TrainingCase) -> bool:
    return case.precision in ("fp16", "bf16")


def _trainer(case: TrainingCase) -> str:
    return code_base(case.setting.framework.name)


CLASSES: dict[str, Callable[[TrainingCase], bool]] = {
    "dense, 16 bits": lambda case: _is_dense(case) and _is_wide(case),
    "dense, 8 and 4 bits": lambda case: _is_dense(case) and not _is_wide(case),
    "experts": lambda case: case.experts and not (_is_amd(case) or _is_hybrid(case)),
    "hybrids": lambda case: _is_hybrid(case) and not _is_amd(case),
    "AMD": _is_amd,
    "32K tokens and more": lambda case: case.setting.training.seq_len >= LONG,
    "above 4,096 GPUs": lambda case: case.setting.cluster.devices > MANY,
    "adapters": lambda case: case.setting.training.adapter is not None,
    "GH200": lambda case: case.setting.cluster.device.name.startswith("gh200"),
    "experts under torchtitan": lambda case: case.experts and _trainer(case) == "torchtitan",
    "all": lambda case: True,
}
"""Classes of runs; the first five divide all runs."""


def divided(ledger: Ledger, files: Sequence[Path], divided_files: Sequence[Path]) -> PartedLedger:
    """Divide the ledger of some files into parts.

    Args:
        ledger: of all files.
        files: CSVs whose rows are all open.
        divided_files: CSVs of which a third is kept apart.

    Raises:
        InputError: a file is not readable.
    """
    part: dict[str, str] = {}
    silent: set[str] = set()
    for path in (*files, *divided_files):
        names = [row["case_id"] for row in read_rows(path)]
        apart = kept_apart(names) if path in divided_files else set()
        for name in names:
            share = CHOSEN if source_of(name) in sources().chosen_on else LEFT_OUT
            part[name] = APART if name in apart else share
        silent |= named(path, sources().no_figure)
    entries = [entry for entry in ledger.entries if entry.case.case_id not in silent]
    skipped = [(case_id, reason) for case_id, reason in ledger.skipped if case_id not in silent]
    return PartedLedger(Ledger(entries, skipped), part, len(silent))
