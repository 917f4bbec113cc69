"""Measured servers on which the serving model was developed: what a predicted deployment is nearest to.

``servers.csv`` counts rows of closed loops by model, device, engine family, weights and degrees;
their sources are ai-dynamo/aiconfigurator (silicon_sample.csv) and SemiAnalysisAI/InferenceX.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.serving.shapes import ReplicaShape

FILE = Path(__file__).with_suffix(".csv")

PLACE = ("model", "device", "engine")
LAYOUT = ("weights", "tensor", "data", "expert")
SAME = 3
"""Closeness of the same model, device, engine and layout."""


@dataclass(frozen=True)
class Evidence:
    """Measured rows nearest to a deployment.

    Attributes:
        closeness: 3 for the same model, device, engine and layout; 2 for another layout of these; 1 for the
            same device and engine with another model; 0 for none.
        rows: number of measured rows as close.
    """

    closeness: int
    rows: int

    def words(self, place: Mapping[str, str]) -> str:
        """What was measured, for people."""
        model, device, engine = (place[name] for name in PLACE)
        counted = f"{self.rows:,} measured row{'' if self.rows == 1 else 's'}"
        return {
            3: f"{counted} of this layout of {model} on {device} with {engine}",
            2: f"{counted} of other layouts of {model} on {device} with {engine}",
            1: f"{counted} of other models on {device} with {engine}",
            0: f"no measured server on {device} with {engine}",
        }[self.closeness]


@cache
def measured_servers() -> tuple[Mapping[str, str], ...]:
    """All rows of the file."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def evidence(place: Mapping[str, str], layout: Mapping[str, str]) -> Evidence:
    """The measured rows nearest to a deployment.

    Args:
        place: model, device and engine family.
        layout: weights, tensor, data and expert, as text.
    """
    counts = [0, 0, 0, 0]
    for row in measured_servers():
        if row["device"] != place["device"] or row["engine"] != place["engine"]:
            continue
        same = row["model"] == place["model"]
        close = 3 if same and all(row[name] == layout[name] for name in LAYOUT) else 2 if same else 1
        counts[close] += int(row["rows"])
    closest = max((close for close in (3, 2, 1) if counts[close]), default=0)
    return Evidence(closest, counts[closest])


def rows_of_layouts(model: str, engine: str) -> Callable[[ReplicaShape], int]:
    """A count of the measured rows of a replica's layout, of this model on its device and engine family.

    Args:
        model: of the catalogue.
        engine: family of the engine.

    Returns:
        Rows of a replica; 0 of one with pipeline stages or speculation, which no row has.
    """

    def rows(shape: ReplicaShape) -> int:
        pool = shape.pool
        if pool.pipeline > 1 or pool.speculation is not None:
            return 0
        layout = {name: str(getattr(pool, name)) for name in LAYOUT[1:]} | {"weights": pool.stored}
        counts = evidence({"model": model, "device": shape.offer.name, "engine": engine}, layout)
        return counts.rows if counts.closeness == SAME else 0

    return rows
