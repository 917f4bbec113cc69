"""Write the configurations of measured runs that plans are judged by (planner/training/measured_runs.csv).

    python -m benchmarks.measured_runs RUNS.csv [MORE.csv ...] [--kept-apart NEW.csv] [--write]

One line for each framework, device, number of GPUs, model and set of mechanisms, with the number of measured
runs, the errors of their predictions and the highest measured causal MFU. Runs whose framework or micro batch
is assumed are left out, and rows that are kept apart. The rows that ship are always read.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from core.errors import MeshwrightError
from core.files import write_text
from evidence.command import command
from evidence.training.parts import kept_apart
from hwmodels.cluster import usual_cluster
from meshwright.validation.cases import TrainingCase, read_case
from meshwright.validation.ledger import predicted
from meshwright.validation.rows import SkippedRow, published_files, read_rows
from planner.training.measured_runs import RUNS_FILE, widths
from planner.training.mechanisms import mechanisms
from planner.training.metrics import utilisation
from simulator.ops.counts import model_parameters

COLUMNS = (
    *("case", "source", "framework", "device", "generation", "domain", "gpus"),
    *("model", "parameters", "hidden", "feed_forward", "experts"),
)


def measured(files: Iterable[Path], apart: Iterable[Path]) -> list[tuple[TrainingCase, str]]:
    """Measured cases and their sources, each configuration and time once."""
    fastest: dict[tuple[object, ...], tuple[TrainingCase, str]] = {}
    divided = set(apart)
    for path in files:
        rows = read_rows(path)
        closed = kept_apart(row["case_id"] for row in rows) if path in divided else set()
        for number, values in enumerate(rows, start=2):
            if values["case_id"] in closed:
                continue
            try:
                case = read_case(values, f"{path}: line {number}")
            except (SkippedRow, MeshwrightError):
                continue
            if case.measured_step_s and not {"framework", "micro batch"} & set(case.assumed):
                # Files overlap: a run that stands in two of them is one run.
                key = repr(case.setting.model), repr(case.plan), round(case.measured_step_s, 2)
                fastest.setdefault(key, (case, values.get("source", "").split(",")[0][:60]))
    return list(fastest.values())


def lines(cases: Iterable[tuple[TrainingCase, str]]) -> list[dict[str, Any]]:
    """Lines of the file, equal configurations counted."""
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], dict[str, Any]] = {}
    errors: dict[tuple[object, ...], list[float]] = defaultdict(list)
    reached: dict[tuple[object, ...], float] = defaultdict(float)
    measured_cases = list(cases)
    seconds = {
        id(entry.case): entry.predicted_step_s for entry in predicted([case for case, _ in measured_cases])
    }
    for case, source in measured_cases:
        setting = case.setting
        used = "; ".join(sorted(mechanisms(setting, case.plan)))
        name, device = setting.framework.name, setting.cluster.device.name
        key = name, device, setting.cluster.devices, setting.model.name, used
        counts[key] += 1
        reached[key] = max(reached[key], utilisation(setting, case.measured_step_s or math.inf, causal=True))
        if id(case) in seconds:
            errors[key].append((case.measured_step_s or 0.0) / seconds[id(case)] - 1)
        row = dict(zip(("framework", "device", "gpus", "model", "mechanisms"), key, strict=True))
        parameters = f"{model_parameters(setting.model):.3g}"
        experts = int(setting.model.moe is not None)
        row |= {"generation": setting.cluster.device.generation.name, "domain": usual_cluster(device).domain}
        hidden, feed_forward = widths(setting.model)
        row |= {"case": case.case_id, "source": source, "parameters": parameters, "experts": experts}
        row |= {"hidden": hidden, "feed_forward": feed_forward}
        first.setdefault(key, row)
    ordered = sorted(first, key=lambda key: tuple(map(str, key)))
    off = {key: " ".join(f"{error:.3f}" for error in sorted(errors[key])) for key in ordered}
    return [
        {**first[key], "count": counts[key], "utilisation": f"{reached[key]:.3f}", "errors": off[key]}
        for key in ordered
    ]


@command
def main(
    files: Sequence[Path] = (),
    *,
    kept_apart: Annotated[Sequence[Path], "CSV with a third kept apart"] = (),
    write: Annotated[bool, f"write {RUNS_FILE.name}"] = False,
) -> None:
    """Print how many runs and mechanisms there are; write the file if asked."""
    files = [*dict.fromkeys([*files, *kept_apart, *published_files()])]
    table = lines(measured(files, kept_apart))
    print(f"{sum(int(str(row['count'])) for row in table)} runs, {len(table)} configurations")
    used: Counter[str] = Counter()
    for row in table:
        for name in str(row["mechanisms"]).split("; "):
            used[name] += int(str(row["count"]))
    for name, count in used.most_common():
        print(f"  {count:5d} {name}")
    if write:
        names: list[str] = [*COLUMNS, "count", "utilisation", "errors", "mechanisms"]
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        write_text(RUNS_FILE, text.getvalue())
