"""Fit the times around kernels of each engine version, class of layers and number format.

    python -m benchmarks.fit_engines FOLDER [--write]

FOLDER holds published runs (`closed_loop.csv.gz`, `energy.csv.gz`, `static_batch.csv`, ...). A first fit
pools all versions of an engine; it is the prior of each version's own. Errors are those of TPOT (or ITL, or
latency) on rows of a model, else of a GPU, else of a tensor-parallel degree that the fit did not see.
``--write`` puts the constants into `simulator/serving/engines/*.yaml`.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from meshwright.validation.serving import (
    closed_loop,
    energy,
    ledger,
    offline,
    stages,
    static_batch,
    trtllm_tables,
)
from meshwright.validation.serving.case import Case, Setup, price_of
from simulator.serving.engines import engines
from simulator.serving.engines.engine import FOLDER, LayerTimes
from simulator.serving.price import StepPrice, format_class, layer_class
from simulator.serving.table import IterationTable

METRICS = {
    closed_loop: ("tpot_ms_mean",),
    energy: ("itl_ms_p50", "tpot_ms_mean"),
    stages: ("itl_ms_mean",),
    static_batch: ("decode_step_ms", "prefill_ms"),
    offline: ("latency_s",),
    trtllm_tables: ("out_tok_s",),
}
FILES = (
    "closed_loop.csv.gz",
    "energy.csv.gz",
    "open_loop_stages.csv",
    "static_batch.csv",
    "offline_batch.csv.gz",
    "trtllm_tables.csv",
)
LARGEST_BATCH = 600.0
"""Energy rows above it ran with more sequences allowed than memory held."""
START = np.array([20e-6, 3e-6, 20e-6, 1.0])
SPREAD = np.array([60e-6, 4e-6, 20e-6, 0.2])
"""Prior of layer_s, all_reduce_s, sequence_s and prefill_factor before any row is seen."""
OWN_SPREAD = np.array([30e-6, 2e-6, 10e-6, 0.1])
"""How far a version's constants may lie from those of all versions."""
LOWEST = np.array([0.0, 0.0, 0.0, 0.4])
NOISE = 0.08
"""Relative error of a row that the fit takes for granted."""

Key = tuple[str, str, str]


@dataclass
class Rows:
    """Rows of one replica: predicted in one call."""

    reader: object
    questions: list
    metric: str
    measured: np.ndarray
    setup: Setup

    def errors(self) -> np.ndarray:
        """Log of predicted over measured."""
        predict = getattr(self.reader, "predict_steady", None) or self.reader.predict  # type: ignore[attr-defined]
        found = predict(self.questions)
        return np.log(np.array([one[self.metric] for one in found]) / self.measured)


def excluded(case: Case) -> bool:
    """Rows that break for reasons of their own; see docs/serving-accuracy.md."""
    question, engine = case.question, case.engine
    model, gpu = question.serving.model.name, case.gpu
    if case.flagged or getattr(question, "speculates", False) or getattr(question, "prefill", None):
        return True
    if "energy" in case.file:
        single = gpu == "b200" and question.serving.pool.devices == 1
        return question.batch > LARGEST_BATCH or (single and not case.case_id.count("lm-arena"))
    if engine == "vllm-0.12" and model == "llama3.1-8b":
        return True  # prompts served from the prefix cache
    return (engine.startswith("tensorrt-llm-1.2") and "aic" in case.group) or "1.3.0rc" in case.case_id


def read(folder: Path) -> dict[Key, dict[str, list[Rows]]]:
    """Rows by (class, format, generation) and engine."""
    questions: dict = defaultdict(list)
    book = ledger.ServingLedger()
    for name in FILES:
        ledger._read(folder / name, True, questions, book)
    found: dict[Key, dict[str, list[Rows]]] = defaultdict(lambda: defaultdict(list))
    for reader, cases in questions.items():
        groups: dict = defaultdict(list)
        for case in cases:
            for metric in METRICS[reader]:
                if metric in case.measured and not excluded(case):
                    groups[reader.group_key(case.question), metric].append(case)
        for (_, metric), same in groups.items():
            setup = same[0].question.serving
            device = setup.cluster.device
            key = (
                layer_class(setup.model),
                format_class(setup.pool.weights),
                device.generation if device.vendor != "nvidia" else "",
            )
            unique = list({(c.group or c.case_id): c for c in same}.values())
            values = np.array([case.measured[metric] for case in unique])
            rows = Rows(reader, [case.question for case in unique], metric, values, setup)
            found[key][setup.engine.name].append(rows)
    return found


def assign(rows: Sequence[Rows], times: np.ndarray) -> None:
    """Give the tables of rows other times."""
    for one in rows:
        price = price_of(one.setup)
        price.times = price.times.model_copy(
            update={
                "layer_s": times[0],
                "all_reduce_s": times[1],
                "sequence_s": times[2],
                "prefill_factor": times[3],
            }
        )


def fresh_tables() -> None:
    """Make tables read their price's times at each lookup of the fit."""

    def around(self: IterationTable) -> None:
        price: StepPrice = self.price
        self._around = [float(s) for s in price.around(np.arange(self.max_sequences + 1))]
        self._sequence_s, self.prefill_factor = price.times.sequence_s, price.times.prefill_factor

    for name in ("decode_seconds", "mixed_seconds"):
        original: Callable = getattr(IterationTable, name)

        def call(self, *args, _original=original):
            if self._sequence_s != self.price.times.sequence_s or self._around[0] != float(
                self.price.around(0)
            ):
                around(self)
            self.prefill_factor = self.price.times.prefill_factor
            return _original(self, *args)

        setattr(IterationTable, name, call)


def fit(rows: Sequence[Rows], prior: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Constants that fit rows best, weighed against a prior."""

    def residuals(scaled: np.ndarray) -> np.ndarray:
        times = np.maximum(prior + scaled * spread, LOWEST)
        assign(rows, times)
        off = np.concatenate([one.errors() for one in rows]) / NOISE
        return np.concatenate([np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1)), scaled])

    low = np.minimum((LOWEST - prior) / spread, -1e-6)
    best = least_squares(residuals, np.zeros(len(prior)), bounds=(low, np.inf), diff_step=0.02, max_nfev=12)
    return np.maximum(prior + best.x * spread, LOWEST)


def error(rows: Sequence[Rows], times: np.ndarray) -> np.ndarray:
    """Relative errors of rows with given constants."""
    assign(rows, times)
    return np.expm1(np.concatenate([one.errors() for one in rows]))


def left_out(rows: Sequence[Rows], prior: np.ndarray, spread: np.ndarray) -> tuple[str, float | None]:
    """What was left out, and the median error on it."""
    names = {
        "model": lambda one: one.setup.model.name,
        "GPU": lambda one: one.setup.cluster.device.name,
        "TP": lambda one: str(one.setup.pool.tensor),
    }
    for what, name in names.items():
        values = {name(one) for one in rows}
        if len(values) > 1:
            off = []
            for value in sorted(values):
                seen = [one for one in rows if name(one) != value]
                unseen = [one for one in rows if name(one) == value]
                off.append(np.abs(error(unseen, fit(seen, prior, spread))))
            return what, float(np.median(np.concatenate(off)))
    return "", None


def write(name: str, entries: list[LayerTimes]) -> None:
    """Replace the fitted entries of an engine's file."""
    path = FOLDER / f"{name}.yaml"
    head, _, tail = path.read_text().partition("times:\n")
    kept, first = [], {}
    for line in tail.splitlines():
        found = re.search(r"layers: ([\w-]+), format: ([\w-]+),(?: generation: (\w+),)?", line)
        key = found and (found[1], found[2], found[3] or "")
        fixed = re.search(r"first_token_s: ([\d.]+)", line)
        if fixed and key:
            first[key] = fixed[0] + ", "
        if found and key not in {(e.layers, e.format, e.generation) for e in entries}:
            kept.append(line)
    lines = [
        f"  - {{layers: {e.layers}, format: {e.format}, "
        + (f"generation: {e.generation}, " if e.generation else "")
        + f"layer_s: {e.layer_s:.2e}, all_reduce_s: {e.all_reduce_s:.2e}, sequence_s: {e.sequence_s:.2e}, "
        + first.get((e.layers, e.format, e.generation), "")
        + f"prefill_factor: {e.prefill_factor:.2f}, kind: {e.kind}, rows: {e.rows}, "
        + (f"left_out_error: {e.left_out_error:.3f}, " if e.left_out_error is not None else "")
        + f'source: "{e.source}"}}'
        for e in entries
    ]
    path.write_text(head + "times:\n" + "\n".join(lines + kept) + "\n")


def main() -> None:
    """Fit and print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="no left-out errors")
    arguments = parser.parse_args()
    fresh_tables()
    entries: dict[str, list[LayerTimes]] = defaultdict(list)
    for key, by_engine in sorted(read(arguments.folder).items()):
        families: dict[str, list[str]] = defaultdict(list)
        for name in by_engine:
            families[engines.get(name).engine].append(name)
        for family, names in sorted(families.items()):
            pooled = [one for name in names for one in by_engine[name]]
            prior = fit(pooled, START, SPREAD)
            off = error(pooled, prior)
            print(f"{family:13s} {' '.join(key):24s} {_line(prior, off)}  all versions")
            for name in sorted(names):
                rows = by_engine[name]
                times = fit(rows, prior, OWN_SPREAD) if len(names) > 1 else prior
                off = error(rows, times)
                what, median = ("", None) if arguments.quick else left_out(rows, prior, OWN_SPREAD)
                print(f"{name:22s}      {'':15s} {_line(times, off)}  left out: {what} {median}", flush=True)
                entries[name].append(
                    LayerTimes(
                        layers=key[0],  # type: ignore[arg-type]
                        format=key[1],  # type: ignore[arg-type]
                        generation=key[2],
                        layer_s=round(float(times[0]), 8),
                        all_reduce_s=round(float(times[1]), 8),
                        sequence_s=round(float(times[2]), 8),
                        prefill_factor=float(times[3]),
                        kind="derived",
                        source="benchmarks/fit_engines.py",
                        rows=len(off),
                        left_out_error=median,
                    )
                )
    if arguments.write:
        for name, fitted in entries.items():
            write(name, fitted)


def _line(times: np.ndarray, off: np.ndarray) -> str:
    us = 1e6 * times[:3]
    sizes = 100 * np.abs(off)
    return (
        f"{us[0]:6.0f} {us[1]:5.1f} {us[2]:5.0f} {times[3]:5.2f}  n {len(off):3d}"
        f"  {np.median(sizes):5.1f} / {np.percentile(sizes, 90):5.1f}"
    )


if __name__ == "__main__":
    main()
