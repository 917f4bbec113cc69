"""Fit the times around kernels of each engine version, class of layers and number format.

    python -m benchmarks.fit_engines FOLDER [--write]

FOLDER holds published runs (`closed_loop.csv.gz`, `energy.csv.gz`, `static_batch.csv`, ...). A first fit
pools the versions of an engine with one scheduling policy (before or after the running step ends); it is the
prior of each version's own. Sampling and the host's work for a sequence do not depend on layers or formats:
that of dense layers in 16 bits is the prior of the others. TPOT (or ITL, latency, throughput) and TTFT are
fitted together, since prefill kernels tell in both. Errors of TPOT and of TTFT are those on rows of a model,
else of a GPU, else of a tensor-parallel degree that the fit did not see.
``--write`` puts the constants into `simulator/serving/engines/*.yaml`. ``--sources`` fits without each source
of rows in turn, and prints the errors on it with the constants of all versions of its engine.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Sequence
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
from meshwright.validation.serving.case import ServingCase, Setup
from simulator.serving.engines import Engine, engines
from simulator.serving.engines.engine import FOLDER, LayerTimes
from simulator.serving.steady.kinds import price_of
from simulator.serving.steps.price import format_class, layer_class
from simulator.serving.steps.step_arrays import StepArrays, StepCases
from simulator.serving.steps.table import IterationTable

METRICS = {
    closed_loop: ("tpot_ms_mean", "ttft_ms_p50", "ttft_ms_mean"),
    energy: ("itl_ms_p50", "tpot_ms_mean"),
    stages: ("itl_ms_mean", "ttft_ms_mean"),
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
CONSTANTS = ("layer_s", "all_reduce_s", "sequence_s", "prefill_factor", "first_token_s", "eager_layer_s")
START = np.array([20e-6, 3e-6, 20e-6, 1.0, 20e-3, 300e-6])
SPREAD = np.array([60e-6, 4e-6, 30e-6, 0.4, 40e-3, 300e-6])
"""Prior of the constants before any row is seen."""
OWN_SPREAD = np.array([30e-6, 2e-6, 20e-6, 0.3, 30e-3, 200e-6])
"""How far a version's constants may lie from those of all versions."""
LOWEST = np.array([0.0, 0.0, 0.0, 0.4, 0.0, 0.0])
PREFILL, EAGER = CONSTANTS.index("prefill_factor"), CONSTANTS.index("eager_layer_s")
MIXED_EAGER = 600e-6, 300e-6
"""Prior of a layer's launches in steps with prompts, where only decodes run in graphs. It starts high: a
launch time below that of the kernels changes no row."""
SEQUENCE, SEQUENCE_SPREAD = CONSTANTS.index("sequence_s"), 4e-6
"""Spread of the time a sequence between classes of layers and formats of one engine."""
NOISE, FIRST_NOISE = 0.08, 0.25
"""Relative errors of a row, and of TTFT, that the fit takes for granted."""

SHARED_NOISE = 0.15
"""Relative error that all rows of one model on one GPU share (its experts' balance, its server): partial
pooling, so that many rows of one server count little more than one."""
LAYER, LEAST_TAU = CONSTANTS.index("layer_s"), 10e-6
"""Least spread of the time a layer between the classes of an engine, s."""
FIRST = "dense", "16-bit"
"""Class of layers and format that give the time a sequence."""

Key = tuple[str, str, str]


@dataclass
class Rows:
    """Rows of one replica: predicted in one call."""

    reader: object
    questions: list
    metric: str
    measured: np.ndarray
    setup: Setup
    source: str = ""
    """Who measured the rows."""

    def errors(self) -> np.ndarray:
        """Log of predicted over measured."""
        predict = getattr(self.reader, "predict_steady", None) or self.reader.predict  # type: ignore[attr-defined]
        found = predict(self.questions)
        return np.log(np.array([one[self.metric] for one in found]) / self.measured)

    @property
    def first(self) -> bool:
        """Whether the metric is a time to first token."""
        return self.metric.startswith("ttft")


def excluded(case: ServingCase) -> bool:
    """Rows that break for reasons of their own; see docs/serving-accuracy.md."""
    question, engine = case.question, case.engine
    model, gpu = question.serving.model.name, case.gpu
    if case.flagged or getattr(question, "speculates", False) or getattr(question, "prefill", None):
        return True
    if "energy" in case.file:
        single = gpu == "b200" and question.serving.pool.devices == 1
        return question.batch > LARGEST_BATCH or (single and not case.case_id.count("lm-arena"))
    if engine == "vllm-0.12" and (model == "llama3.1-8b" or question.serving.pool.weights == "fp8"):
        return True  # prompts served from the prefix cache
    return (engine.startswith("tensorrt-llm-1.2") and "aic" in case.group) or "1.3.0rc" in case.case_id


def source_of(case: ServingCase) -> str:
    """Who measured a row: a file, or one of the harnesses of the closed loops."""
    if hasattr(case.question, "bursts"):
        return "InferenceX" if case.question.bursts else "AIConfigurator"
    return case.file.partition(".")[0]


def unknown(case: ServingCase, metric: str) -> bool:
    """Whether a row's TTFT depends on a start of the run that it does not describe, or its p50 is there."""
    if not metric.startswith("ttft"):
        return False
    bursts = getattr(case.question, "bursts", True)
    return not bursts or (metric == "ttft_ms_mean" and "ttft_ms_p50" in case.measured)


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
                if metric in case.measured and not excluded(case) and not unknown(case, metric):
                    groups[reader.group_key(case.question), metric, source_of(case)].append(case)
        for (_, metric, source), same in groups.items():
            setup = same[0].question.serving
            device = setup.cluster.device
            key = (
                layer_class(setup.model),
                format_class(setup.pool.weights),
                device.generation if device.vendor != "nvidia" else "",
            )
            unique = list({(c.group or c.case_id): c for c in same}.values())
            values = np.array([case.measured[metric] for case in unique])
            rows = Rows(reader, [case.question for case in unique], metric, values, setup, source)
            found[key][setup.engine.name].append(rows)
    return found


def assign(rows: Sequence[Rows], times: np.ndarray) -> None:
    """Give the tables of rows other times."""
    for one in rows:
        price = price_of(one.setup)
        changes: dict[str, float] = dict(zip(CONSTANTS, times.tolist(), strict=True))
        if not launches(price.engine):
            changes["eager_layer_s"] = 0.0
        price.times = price.times.model_copy(update=changes)


def launches(engine: Engine) -> bool:
    """Whether launches bound some steps: all of an engine without graphs, those with prompts where only
    decodes are captured."""
    return not engine.graph_sizes.value or not engine.graphs_mixed.value


def fresh_tables() -> None:
    """Make tables read their price's times at each lookup of the fit."""

    def refresh(self: IterationTable) -> None:
        times = self.price.times
        if getattr(self, "fitted", None) is times:
            return
        self.fitted = times  # type: ignore[attr-defined]
        self._around = [float(s) for s in self.price.around(np.arange(self.max_sequences + 1))]
        self.around_s = self._around[0]
        self.sequence_s, self.prefill_factor = times.sequence_s, times.prefill_factor
        if not self.graphs_mixed:
            self._pad()
        self.fitted_cases = StepArrays([self]).cases()  # type: ignore[attr-defined]

    def cases(self: IterationTable) -> StepCases:
        refresh(self)
        return self.fitted_cases  # type: ignore[attr-defined]

    IterationTable.cases = property(cases)  # type: ignore[assignment,method-assign]


def fit(rows: Sequence[Rows], prior: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Constants that fit rows best, weighed against a prior."""

    known = np.ones(len(prior))
    known[CONSTANTS.index("first_token_s")] = any(one.first for one in rows)
    known[EAGER] = launches(rows[0].setup.engine)
    if not any(one.first for one in rows):
        # Throughput alone tells little of prefill kernels.
        spread = spread * np.where(np.arange(len(prior)) == PREFILL, 0.5, 1.0)
    prior = prior * np.maximum(known, np.arange(len(prior)) < 4)
    spread = spread * np.where(known > 0, 1.0, 1e-9)

    noise = noises(rows)

    def residuals(scaled: np.ndarray) -> np.ndarray:
        times = np.maximum(prior + scaled * spread, LOWEST)
        assign(rows, times)
        off = np.concatenate([one.errors() / own for one, own in zip(rows, noise, strict=True)])
        return np.concatenate([np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1)), scaled])

    low = np.minimum((LOWEST - prior) / spread, -1e-6)
    best = least_squares(residuals, np.zeros(len(prior)), bounds=(low, np.inf), diff_step=0.02, max_nfev=12)
    return np.maximum(prior + best.x * spread, LOWEST)


def noises(rows: Sequence[Rows]) -> list[float]:
    """Relative errors of rows: their own, and that which a model's rows on a GPU share."""
    counts: dict = defaultdict(int)
    for one in rows:
        counts[one.setup.model.name, one.setup.cluster.device.name, one.first] += len(one.measured)
    shares = [counts[one.setup.model.name, one.setup.cluster.device.name, one.first] for one in rows]
    return [
        float(np.hypot(FIRST_NOISE if one.first else NOISE, SHARED_NOISE * count**0.5))
        for one, count in zip(rows, shares, strict=True)
    ]


def layer_of(family: tuple[str, str, bool], key: Key) -> tuple[float, float] | None:
    """Mean and spread over an engine's other classes and formats of the time a layer, s."""
    same = [engines.get(name) for name in engines.names() if family_of(engines.get(name)) == family]
    found = [
        t.layer_s
        for engine in same
        for t in engine.times
        if t.kind == "derived" and (t.layers, t.format) != key[:2] and t.generation == key[2]
    ]
    return (float(np.mean(found)), max(float(np.std(found)), LEAST_TAU)) if len(found) > 2 else None


def family_of(engine: Engine) -> tuple[str, str, bool]:
    """Versions of one family share an engine and a scheduling policy."""
    return engine.engine, engine.scheduler.value, engine.schedules_ahead.value


def sequence_of(family: tuple[str, str, bool], key: Key) -> float | None:
    """Time a sequence of the family's presets with plain dense layers, for other classes and formats."""
    if key[:2] == FIRST:
        return None
    same = [engines.get(name) for name in engines.names() if family_of(engines.get(name)) == family]
    times = [t for engine in same for t in engine.times if (t.layers, t.format) == FIRST]
    found = [t.sequence_s for t in times if t.generation == key[2]]
    return float(np.median(found)) if found else None


def prefill_of(family: tuple[str, str, bool], key: Key) -> float | None:
    """Prefill factor of an engine and class of layers where TTFT tells it, for rows without TTFT."""
    same = [engines.get(name) for name in engines.names() if engines.get(name).engine == family[0]]
    times = [t for engine in same for t in engine.times if t.layers == key[0] and t.generation == key[2]]
    found = [t.prefill_factor for t in times if t.first_token_s]
    return float(np.median(found)) if found else None


def error(rows: Sequence[Rows], times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of rows with given constants, and those of TTFT."""
    assign(rows, times)
    rest, first = ([one.errors() for one in rows if one.first == kind] for kind in (False, True))
    return np.expm1(np.concatenate([[], *rest])), np.expm1(np.concatenate([[], *first]))


def left_out(
    rows: Sequence[Rows], prior: np.ndarray, spread: np.ndarray
) -> tuple[str, float | None, float | None]:
    """What was left out, and the median errors on it: of TPOT and of TTFT."""
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
                off.append(error(unseen, fit(seen, prior, spread)))
            rest, first = (np.abs(np.concatenate(part)) for part in zip(*off, strict=True))
            return what, _median(rest), _median(first)
    return "", None, None


def sources_left_out(rows: Sequence[Rows], start: np.ndarray, spread: np.ndarray) -> None:
    """Print the errors on each source with constants fitted on the others, and with those of all."""
    for source in sorted({one.source for one in rows}):
        seen = [one for one in rows if one.source != source]
        unseen = [one for one in rows if one.source == source]
        if not seen:
            print(f"    {source:18s} no other source")
            continue
        for name, used in (("left out", seen), ("all", rows)):
            times = fit(used, start, spread)
            told = "" if any(one.first for one in used) else "  no TTFT elsewhere"
            print(f"    {source:18s} {name:8s} {_line(times, *error(unseen, times))}{told}", flush=True)


def _median(off: np.ndarray) -> float | None:
    return float(np.median(off)) if len(off) else None


def write(name: str, entries: list[LayerTimes]) -> None:
    """Replace the fitted entries of an engine's file."""
    path = FOLDER / f"{name}.yaml"
    head, _, tail = path.read_text().partition("times:\n")
    kept = []
    for line in tail.splitlines():
        found = re.search(r"layers: ([\w-]+), format: ([\w-]+),(?: generation: (\w+),)?", line)
        key = found and (found[1], found[2], found[3] or "")
        if found and key not in {(e.layers, e.format, e.generation) for e in entries}:
            kept.append(line)
    path.write_text(head + "times:\n" + "\n".join([_entry(e) for e in entries] + kept) + "\n")


def _entry(e: LayerTimes) -> str:
    """One line of an engine's file."""
    return (
        f"  - {{layers: {e.layers}, format: {e.format}, "
        + (f"generation: {e.generation}, " if e.generation else "")
        + f"layer_s: {e.layer_s:.2e}, all_reduce_s: {e.all_reduce_s:.2e}, sequence_s: {e.sequence_s:.2e}, "
        + (f"eager_layer_s: {e.eager_layer_s:.2e}, " if e.eager_layer_s else "")
        + (f"first_token_s: {e.first_token_s:.3f}, " if e.first_token_s else "")
        + f"prefill_factor: {e.prefill_factor:.2f}, "
        + ("reads_kv_per_head: true, " if e.reads_kv_per_head else "")
        + f"kind: {e.kind}, rows: {e.rows}, "
        + (f"left_out_error: {e.left_out_error:.3f}, " if e.left_out_error is not None else "")
        + f'source: "{e.source}"}}'
    )


def main() -> None:
    """Fit and print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="", help="part of a key: class format generation")
    parser.add_argument("--engine", default="", help="pattern of the names of presets")
    parser.add_argument("--quick", action="store_true", help="no left-out errors")
    parser.add_argument("--sources", action="store_true", help="errors on each source left out")
    arguments = parser.parse_args()
    fresh_tables()
    entries: dict[str, list[LayerTimes]] = defaultdict(list)
    for key, by_engine in sorted(read(arguments.folder).items()):
        if arguments.only not in " ".join(key):
            continue
        families: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
        for name in by_engine:
            if re.search(arguments.engine, name):
                families[family_of(engines.get(name))].append(name)
        for family, names in sorted(families.items()):
            pooled = [one for name in names for one in by_engine[name]]
            start, spread = START.copy(), SPREAD.copy()
            if engines.get(names[0]).graph_sizes.value:
                start[EAGER], spread[EAGER] = MIXED_EAGER
            if sequence := sequence_of(family, key):
                start[SEQUENCE], spread[SEQUENCE] = sequence, SEQUENCE_SPREAD
            if layer := layer_of(family, key):
                start[LAYER], spread[LAYER] = layer
            if not any(one.first for one in pooled) and (factor := prefill_of(family, key)):
                start[PREFILL] = factor
            if arguments.sources:
                print(f"{family[0]:13s} {' '.join(key)}")
                sources_left_out(pooled, start, spread)
                continue
            prior = fit(pooled, start, spread)
            own = np.minimum(OWN_SPREAD, spread)
            print(f"{family[0]:13s} {' '.join(key):24s} {_line(prior, *error(pooled, prior))}  all versions")
            for name in sorted(names):
                rows = by_engine[name]
                times = fit(rows, prior, own) if len(names) > 1 else prior
                off = error(rows, times)
                what, rest, first = ("", None, None) if arguments.quick else left_out(rows, prior, own)
                line = f"{name:22s}      {'':15s} {_line(times, *off)}"
                print(f"{line}  left out: {what} {rest} TTFT {first}", flush=True)
                entries[name].append(_times(rows, key, times, len(off[0]), rest))
    if arguments.write:
        for name, fitted in entries.items():
            write(name, fitted)


def _times(rows: Sequence[Rows], key: Key, times: np.ndarray, count: int, left: float | None) -> LayerTimes:
    """The entry of an engine's file; constants that no row tells are left at 0."""
    found = dict(zip(CONSTANTS, np.round(times, 8).tolist(), strict=True))
    if not any(one.first for one in rows):
        found["first_token_s"] = 0.0
    engine = engines.get(rows[0].setup.engine.name)
    untold = bool(engine.graph_sizes.value) and abs(times[EAGER] / MIXED_EAGER[0] - 1) < 0.05
    if untold or not launches(engine):
        found["eager_layer_s"] = 0.0
    return LayerTimes(
        reads_kv_per_head=price_of(rows[0].setup).times.reads_kv_per_head,
        layers=key[0],  # type: ignore[arg-type]
        format=key[1],  # type: ignore[arg-type]
        generation=key[2],
        kind="derived",
        source="benchmarks/fit_engines.py",
        rows=count,
        left_out_error=left,
        **found,
    )


def _line(times: np.ndarray, off: np.ndarray, first: np.ndarray) -> str:
    us, first_ms, eager_us = 1e6 * times[:3], 1e3 * times[4], 1e6 * times[5]
    text = f"{us[0]:6.0f} {us[1]:5.1f} {us[2]:5.0f} {times[3]:5.2f} {first_ms:5.0f} ms {eager_us:5.0f}"
    text += f"  n {len(off):3d}"
    for one in (off, first):
        if len(one):
            text += f"  {100 * np.median(np.abs(one)):5.1f} / {100 * np.percentile(np.abs(one), 90):5.1f}"
    return text


if __name__ == "__main__":
    main()
