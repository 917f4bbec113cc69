"""Peaks of memory, refused runs, runs that ran out, and how often plans said to fit with some chance do fit.

    python -m benchmarks.memory_chances [RUNS.csv ...] [--kept-apart NEW.csv ...] [--ran-out REPORTS.csv]

Tables: errors of peaks by release, device and kind of model; runs that ran although the prediction is above
their device; in ten bins, how often a device with a chance of so much holds the measured peak, under the
errors that ship and under errors fitted to other sources, with the mean logarithm of the density that these
give to measured peaks; reports of runs that ran out of memory (``out_of_memory.csv`` and ``--ran-out``) with
their chance on their own device; what torch's allocator had reserved and not given to tensors when runs ran
out (``full_devices.csv``), beside what is predicted of these runs. Shares are means over sources: none counts
by the number of its rows. Peaks of fine-tuning (``fine_tuning_peaks.csv``) count. Of a file given as
``--kept-apart`` the open rows count.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np

from core.errors import InputError, MeshwrightError
from evidence.command import command
from evidence.training.parts import divided, source_of
from meshwright.validation.ledger import ErrorSummary, PredictedCase, evaluate
from meshwright.validation.rows import BLANK, published_files, read_rows
from planner.training.prediction import simulate_plan
from simulator.uncertainty import (
    PeakErrors,
    chance_to_fit,
    chance_within,
    distance_of,
    model_errors,
    peak_errors,
)

OUT_OF_MEMORY = Path(__file__).with_name("out_of_memory.csv")
FINE_TUNING = Path(__file__).with_name("fine_tuning_peaks.csv")
FULL_DEVICES = Path(__file__).with_name("full_devices.csv")
LARGE_GIB = 30.0
"""Memory from which on a device counts as large."""
SIZES = ("n_gpus", "n_layers", "d_model", "n_heads", "seq_len", "global_batch", "micro_batch", "tp", "pp")
"""Columns without which a report of a run that ran out decides nothing."""
CHANCES = np.linspace(0.05, 0.95, 10)
"""Middles of ten bins."""
KINDS = ("dense", "experts", "several trainers")
"""Kinds of models and releases with errors of their own (``simulator.uncertainty.peak_errors``)."""
BIASES, SPREADS = np.arange(-0.25, 0.2501, 0.005), np.arange(0.01, 0.6, 0.0025)
"""Errors that a fit chooses from."""
ErrorsOf = Callable[[PredictedCase], PeakErrors]


def reports(path: Path) -> Sequence[PredictedCase]:
    """Predictions of runs that ran out of memory.

    Raises:
        InputError: a row lacks a size, or is not read.
    """
    for row in read_rows(path):
        for name in SIZES:
            if row.get(name, "").lower() in BLANK:
                where = f"{path}: {row['case_id'] or 'a row without a name'}"
                problem = f"found {row[name]!r}" if name in row else "the column is missing"
                raise InputError(f"{name}: a whole number from 1 is needed, {problem}", where)
    ledger = evaluate([path])
    for case, reason in ledger.skipped:
        raise InputError(reason, f"{path}: {case}")
    return ledger.entries


def chances_met(entries: Iterable[PredictedCase], errors: ErrorsOf) -> dict[str, np.ndarray]:
    """The chance to fit that a device of the size of each measured peak would have, by source."""
    by_source = defaultdict(list)
    for entry in entries:
        if entry.memory_error is not None:
            shares = errors(entry)
            distance = (-np.log1p(entry.memory_error) - shares.bias) / shares.spread
            by_source[source_of(entry.case.case_id)].append(float(chance_within(distance)))
    return {source: np.array(chances) for source, chances in by_source.items()}


def shipped(entry: PredictedCase) -> PeakErrors:
    """The errors that answers use."""
    return peak_errors(entry.case.setting)


def left_out(entries: Sequence[PredictedCase]) -> ErrorsOf:
    """Errors of each kind, fitted without the judged run's source; as shipped where no other is left."""

    @cache
    def without(kind: str, source: str) -> PeakErrors | None:
        others = [each for each in of_kind(entries, kind) if source_of(each.case.case_id) != source]
        return fitted(others) if others else None

    return lambda entry: without(kind_of(entry), source_of(entry.case.case_id)) or shipped(entry)


def kind_of(entry: PredictedCase) -> str:
    """The kind of a run."""
    setting = entry.case.setting
    if setting.framework.memory.shared:
        return "several trainers"
    return "dense" if setting.model.moe is None else "experts"


def of_kind(entries: Iterable[PredictedCase], kind: str) -> list[PredictedCase]:
    """Runs of one kind."""
    return [entry for entry in entries if kind_of(entry) == kind]


def met(chances: Iterable[np.ndarray]) -> np.ndarray:
    """Share of the runs that fit at each chance of ``CHANCES``, as mean over sources."""
    return np.mean([(values[:, None] <= CHANCES).mean(axis=0) for values in chances], axis=0)


def fitted(entries: Sequence[PredictedCase]) -> PeakErrors:
    """Errors under which as many runs fit as are said to: largest and mean gap of ten bins are least."""
    by_source = defaultdict(list)
    for entry in entries:
        if entry.memory_error is not None:
            by_source[source_of(entry.case.case_id)].append(-np.log1p(entry.memory_error))
    limits = distance_of(CHANCES)
    # Largest logarithm that a chance covers, by bias, spread and chance.
    covered = BIASES[:, None, None] + SPREADS[:, None] * limits
    shares = np.zeros(covered.shape)
    for values in by_source.values():
        shares += np.searchsorted(np.sort(values), covered, side="right") / len(values)
    gaps = np.abs(shares / len(by_source) - CHANCES)
    distance = gaps.max(axis=-1) + gaps.mean(axis=-1)
    bias, spread = np.unravel_index(distance.argmin(), distance.shape)
    return PeakErrors(bias=round(float(BIASES[bias]), 3), spread=round(float(SPREADS[spread]), 4))


def log_density(entries: Iterable[PredictedCase], errors: ErrorsOf) -> float:
    """Mean logarithm of the density of measured peaks, as mean over sources: the higher, the better."""
    by_source = defaultdict(list)
    for entry in entries:
        if entry.memory_error is not None:
            shares = errors(entry)
            distance = (-np.log1p(entry.memory_error) - shares.bias) / shares.spread
            # The derivative of ``chance_within``.
            by_source[source_of(entry.case.case_id)].append(
                -1.5 * np.log(2 + distance**2) - np.log(shares.spread)
            )
    return float(np.mean([np.mean(values) for values in by_source.values()]))


def line(name: str, entries: Sequence[PredictedCase], errors: ErrorsOf) -> str:
    """Rows, sources, the share of runs that fit at each chance, the largest gap in %, and the density."""
    by_source = chances_met(entries, errors)
    rows, shares = sum(map(len, by_source.values())), met(by_source.values())
    gap = abs(shares - CHANCES).max()
    cells = " ".join(f"{share:>4.0%}" for share in shares)
    return (
        f"{name:<34}{rows:>5} {len(by_source):>8}  {cells}  {gap:>4.0%}{log_density(entries, errors):>9.2f}"
    )


def own_chance(entry: PredictedCase) -> float:
    """Chance of a run to fit its own device."""
    setting = entry.case.setting
    memory = setting.cluster.device.memory_bytes
    return float(chance_to_fit(np.array(entry.predicted_peak_bytes), memory, setting))


def print_peaks(measured: Sequence[PredictedCase]) -> None:
    """Errors of peaks by release, device and kind."""
    keys = {
        "kind": kind_of,
        "release": lambda entry: entry.case.setting.framework.name,
        "device": lambda entry: entry.case.setting.cluster.device.name,
    }
    print(f"{'peaks: predicted over measured, less 1':<42}{'rows':>5}  median    p90    bias")
    for title, key in {"": lambda entry: "all", **keys}.items():
        groups = defaultdict(list)
        for entry in measured:
            groups[key(entry)].append(entry.memory_error)
        for name in sorted(groups):
            summary = ErrorSummary.of(groups[name])
            median, p90, bias = summary.median_abs_error, summary.p90_abs_error, summary.bias
            print(f"{f'{title} {name}'.strip():<42}{summary.n:>5}  {median:>6.1%} {p90:>6.1%} {bias:>+7.1%}")
    print()


def print_refused(entries: Sequence[PredictedCase]) -> None:
    """Runs that ran although their predicted peak is above their device."""
    above = [entry for entry in entries if not entry.fits]
    print(f"ran but refused: {len(above)} of {len(entries)}, {len(above) / len(entries):.1%}")
    for entry in above:
        print(f"  {described(entry)}")
    print()


def described(entry: PredictedCase) -> str:
    """A run, its peak over its device, and its chance to fit."""
    setting = entry.case.setting
    device = setting.cluster.device
    share = entry.predicted_peak_bytes / device.memory_bytes
    words = f"{entry.case.case_id:<22}{setting.model.name:<22}{setting.framework.name:<30}{device.name:<15}"
    return f"{words}{share:>5.0%} of the device, chance {own_chance(entry):.0%}"


def print_bins(ran: Sequence[PredictedCase], out: Sequence[PredictedCase]) -> None:
    """Runs that ran and reports of runs that ran out, by chance on their own device."""
    edges = np.linspace(0, 1, 11)
    counts = [np.histogram([own_chance(entry) for entry in group], edges)[0] for group in (ran, out)]
    print(f"{'chance on the own device':<28}{'ran':>6}{'ran out':>9}")
    for low, high, each, other in zip(edges, edges[1:], *counts, strict=False):
        print(f"{f'{low:.0%} to {high:.0%}':<28}{each:>6}{other:>9}")
    required = model_errors().memory.required_chance
    wrong = sum(own_chance(entry) >= required for entry in out)
    print(
        f"ran out, said to fit with {required:.0%} or more: {wrong} of {len(out)}, {wrong / len(out):.0%}\n"
    )


def unallocated_shares(path: Path) -> dict[str, tuple[float, float]]:
    """Memory of the device in GiB, and share of the reserved memory that no tensor has, by report.

    Raises:
        InputError: a row lacks a size.
    """
    shares = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        try:
            device, allocated, unallocated = (
                float(row[name]) for name in ("device_gib", "allocated_gib", "unallocated_gib")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a size is missing or no number: {error}", f"{path}: {row['report']}") from None
        shares[row["report"]] = device, unallocated / (allocated + unallocated)
    return shares


def predicted_unallocated(entry: PredictedCase) -> float:
    """The same share as predicted of a run, on its fullest stage."""
    usage = simulate_plan(entry.case.setting, entry.case.plan).prediction.memory
    stage = int(np.argmax(usage.stages[:, 0]))
    passes = usage.parts["activations"] + usage.parts["workspace"] - usage.pool
    unallocated = (1 - 1 / usage.fragmentation) * passes
    return float(unallocated[stage, 0] / usage.counted("reserved")[stage, 0])


def print_full_devices(out: Sequence[PredictedCase]) -> None:
    """Reserved memory without a tensor on full devices: reported, and predicted of runs that ran out."""
    reported = unallocated_shares(FULL_DEVICES).values()
    groups = {
        "reported": [share for _, share in reported],
        f"reported, above {LARGE_GIB:.0f} GiB": [share for size, share in reported if size > LARGE_GIB],
        "predicted of runs that ran out": [predicted_unallocated(entry) for entry in out],
    }
    print(f"{'full devices: reserved, not allocated':<42}{'runs':>5}  lower quartile  median  upper quartile")
    for name, shares in groups.items():
        low, middle, high = np.percentile(shares, [25, 50, 75])
        print(f"{name:<42}{len(shares):>5}  {low:>14.1%}  {middle:>6.1%}  {high:>14.1%}")
    print()


@command
def main(
    files: Sequence[Path] = (),
    *,
    kept_apart: Sequence[Path] = (),
    ran_out: Annotated[Sequence[Path], "further reports"] = (),
) -> None:
    """Print peaks, refused runs, chances in ten bins, and the runs that ran out."""
    try:
        out = [entry for path in (OUT_OF_MEMORY, *ran_out) for entry in reports(path)]
        files = [*(files or published_files()), FINE_TUNING]
        ledger = evaluate([*files, *kept_apart])
    except MeshwrightError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    entries = divided(ledger, files, kept_apart).open_ledger().entries
    measured = [entry for entry in entries if entry.memory_error is not None]
    print_peaks(measured)
    print_refused(entries)
    kinds = [kind for kind in KINDS if of_kind(measured, kind)]
    cells = " ".join(f"{chance:>4.0%}" for chance in CHANCES)
    print(f"{'said to fit with':<34}{'rows':>5} {'sources':>8}  {cells}   gap  density")
    for title, errors in (("", shipped), ("source left out: ", left_out(measured))):
        print(line(f"{title}all", measured, errors))
        for kind in kinds:
            print(line(f"{title}{kind}", of_kind(measured, kind), errors))
    for kind in kinds:
        errors = fitted(of_kind(measured, kind))
        print(f"{kind}, fitted to these rows, a weight a source: bias {errors.bias}, spread {errors.spread}")
    print("\nran out of memory:")
    for entry in out:
        print(f"  {described(entry)}")
    print()
    print_full_devices(out)
    print_bins(entries, out)
