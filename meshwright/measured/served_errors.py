"""How far predictions of servers were off on measured rows that no constant saw, by what is measured.

``served_errors.csv`` is written by ``python -m benchmarks.fit_engines FOLDER ... --errors``: constants of
engines are fitted without the rows of a model, or of an engine on a device, and predict those rows. A line
pools rows of an engine family, a class of layers and a device; an empty name stands for all.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from meshwright.measured.servers import LAYOUT, Evidence, evidence, rows_of_layouts
from planner.serving.preferred import Measured
from planner.serving.question import ServingQuestion
from simulator.serving.engines import engines
from simulator.serving.engines.classes import layer_class

FILE = Path(__file__).with_suffix(".csv")

LEFT_OUT = {3: ("model",), 2: ("model",), 1: ("model",), 0: ("place", "model")}
"""What fits leave out, by the closeness of the nearest measured rows; the larger error counts. Errors on rows
of the fit are smaller, and say nothing of the next server."""
WORDS = {
    "model": "on models left out of the fit",
    "place": "on engines and devices left out of the fit",
}
METRICS = {"TPOT": "tpot", "TTFT": "ttft"}
"""Metrics of the file, and their names in reports."""
FEWEST = 10
"""Least number of rows that a line of the file pools."""


@dataclass(frozen=True)
class ServedError:
    """Absolute relative errors of one metric.

    Attributes:
        median, p90: shares of the measured value.
        rows: number of rows.
        left_out: what the fit left out: "model" or "place".
        of: engine family, class of layers and device of the rows; empty where all count.
    """

    median: float
    p90: float
    rows: int
    left_out: str
    of: tuple[str, str, str]

    def words(self) -> str:
        """The error for people, without its metric."""
        engine, layers, device = self.of
        rows = f"{self.rows:,} rows" + "".join(
            f" {word} {name}" for word, name in (("with", engine), ("of", layers), ("on", device)) if name
        )
        errors = f"{100 * self.median:.0f} %, one of ten beyond {100 * self.p90:.0f} %"
        return f"{errors}, {WORDS[self.left_out]} ({rows})"


@cache
def _errors() -> dict[tuple[str, ...], ServedError]:
    errors = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            of = row["engine"], row["layers"], row["device"]
            error = ServedError(
                float(row["median"]), float(row["p90"]), int(row["rows"]), row["left_out"], of
            )
            errors[row["left_out"], row["metric"], *of] = error
    return errors


def served_errors(nearest: Evidence, engine: str, layers: str, device: str) -> dict[str, ServedError]:
    """Errors to expect of an answer, by metric ("tpot", "ttft"), from the narrowest pool of rows.

    Args:
        nearest: measured rows nearest to the deployment.
        engine: family.
        layers: class of layers of the model.
        device: name.
    """
    pools = (engine, layers, device), (engine, layers, ""), (engine, "", ""), ("", "", "")
    by_metric = {}
    for metric, name in METRICS.items():
        lines = (
            [error for of in pools if (error := _errors().get((left_out, metric, *of))) is not None]
            for left_out in LEFT_OUT[nearest.closeness]
        )
        narrowest = [errors[0] for errors in lines if errors]
        if narrowest:
            by_metric[name] = max(narrowest, key=lambda error: error.median)
    return by_metric


def _error_of_plain(model: str, engine: str, layers: str, device: str) -> float | None:
    """90th percentile of the error of a plain server's time per output token, as a share; None if unknown.

    Args:
        model: of the catalogue.
        engine: family.
        layers: class of layers of the model.
        device: name.
    """
    nearest = evidence({"model": model, "device": device, "engine": engine}, dict.fromkeys(LAYOUT, ""))
    error = served_errors(nearest, engine, layers, device).get("tpot")
    return None if error is None else error.p90


def measured_of(question: ServingQuestion) -> Measured:
    """What measured servers say of the deployments of a question."""
    model, engine = question.model, engines.get(question.engine).engine
    layers = layer_class(model)
    errors = [_error_of_plain(model.name, engine, layers, offer.name) for offer in question.types]
    measured = [error for error in errors if error is not None]
    return Measured(rows_of_layouts(model.name, engine), max(measured, default=None))
