"""How often plans that are said to fit with some chance do fit.

    python -m benchmarks.memory_chances [RUNS.csv ...] [--kept-apart NEW.csv ...]

Each measured peak is asked whether it stays within a device of such a size that the plan would fit with a
chance of 50, 80, 90, 95 or 99 %, under the errors that ship and under errors fitted to other sources. Shares
are means over sources: none counts by the number of its rows. Of a file given as ``--kept-apart`` the open
rows count. Runs that ran out of memory (``out_of_memory.csv``, with their sources) are printed with their
chance on their own device.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from evidence.training.parts import divided, source_of
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.rows import published_files
from simulator.uncertainty import PeakErrors, chance_to_fit, peak_errors

OUT_OF_MEMORY = Path(__file__).with_name("out_of_memory.csv")
CHANCES = (0.5, 0.8, 0.9, 0.95, 0.99)
KINDS = ("dense", "experts", "several trainers")
"""Kinds of models and releases with errors of their own (``simulator.uncertainty.peak_errors``)."""
ErrorsOf = Callable[[PredictedCase], PeakErrors]


def chances_met(entries: Iterable[PredictedCase], errors: ErrorsOf) -> dict[str, np.ndarray]:
    """The chance to fit that a device of the size of each measured peak would have, by source."""
    by_source = defaultdict(list)
    for entry in entries:
        if entry.memory_error is not None:
            own = errors(entry)
            distance = (-np.log1p(entry.memory_error) - own.bias) / own.spread
            by_source[source_of(entry.case.case_id)].append(NormalDist().cdf(distance))
    return {source: np.array(chances) for source, chances in by_source.items()}


def shipped(entry: PredictedCase) -> PeakErrors:
    """The errors that answers use."""
    return peak_errors(entry.case.setting)


def left_out(entries: Sequence[PredictedCase]) -> ErrorsOf:
    """Errors of each kind, fitted without the judged run's source; as shipped where no other is left."""

    @cache
    def fitted(kind: str, source: str) -> PeakErrors | None:
        others = [each for each in of_kind(entries, kind) if source_of(each.case.case_id) != source]
        if not others:
            return None
        bias, wide = spread(others)
        return PeakErrors(bias=bias, spread=wide)

    return lambda entry: fitted(kind_of(entry), source_of(entry.case.case_id)) or shipped(entry)


def kind_of(entry: PredictedCase) -> str:
    """The kind of a run."""
    setting = entry.case.setting
    if setting.framework.memory.shared:
        return "several trainers"
    return "dense" if setting.model.moe is None else "experts"


def of_kind(entries: Iterable[PredictedCase], kind: str) -> list[PredictedCase]:
    """Runs of one kind."""
    return [entry for entry in entries if kind_of(entry) == kind]


def line(name: str, by_source: dict[str, np.ndarray]) -> str:
    """Rows, sources and the share of runs that fit at each chance, in %, as mean over sources."""
    rows = sum(map(len, by_source.values()))
    shares = (np.mean([(met <= chance).mean() for met in by_source.values()]) for chance in CHANCES)
    return f"{name:<34}{rows:>5} {len(by_source):>8}  " + " ".join(f"{share:>6.1%}" for share in shares)


def spread(entries: Sequence[PredictedCase]) -> tuple[float, float]:
    """Mean and standard deviation of measured over predicted, of logarithms, each source with one weight."""
    by_source = defaultdict(list)
    for entry in entries:
        if entry.memory_error is not None:
            by_source[source_of(entry.case.case_id)].append(-np.log1p(entry.memory_error))
    bias = np.mean([np.mean(values) for values in by_source.values()])
    return float(bias), float(
        np.sqrt(np.mean([np.mean((np.array(v) - bias) ** 2) for v in by_source.values()]))
    )


def main() -> None:
    """Print the shares of all runs and by release, and the runs that did not fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--kept-apart", type=Path, action="append", default=[])
    asked = parser.parse_args()
    files = asked.files or published_files()
    ledger = evaluate([*files, *asked.kept_apart])
    entries = divided(ledger, files, asked.kept_apart).open_ledger().entries
    measured = [entry for entry in entries if entry.memory_error is not None]
    kinds = [kind for kind in KINDS if of_kind(measured, kind)]
    print(f"{'said to fit with':<34}{'rows':>5} {'sources':>8}  " + " ".join(f"{p:>6.0%}" for p in CHANCES))
    for title, errors in (("", shipped), ("source left out: ", left_out(measured))):
        print(line(f"{title}all", chances_met(measured, errors)))
        for kind in kinds:
            print(line(f"{title}{kind}", chances_met(of_kind(measured, kind), errors)))
    by_release = defaultdict(list)
    for entry in measured:
        by_release[entry.case.setting.framework.name].append(entry)
    for name, found in sorted(by_release.items()):
        print(line(name, chances_met(found, shipped)))
    print()
    for kind in kinds:
        bias, wide = spread(of_kind(measured, kind))
        print(f"{kind}, fitted to these rows, a weight a source: bias {bias:+.3f}, spread {wide:.3f}")
    print("\nran out of memory:")
    for entry in evaluate([OUT_OF_MEMORY]).entries:
        memory = entry.case.setting.cluster.device.memory_bytes
        chance = float(chance_to_fit(np.array(entry.predicted_peak_bytes), memory, entry.case.setting))
        print(
            f"  {entry.case.case_id}: {chance:.0%}, {entry.predicted_peak_bytes / memory:.0%} of the device"
        )


if __name__ == "__main__":
    main()
