"""Recommendation models with embedding tables, one YAML file each."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.loading import Catalogue, Strict

Array = NDArray[np.float64]
Width = Annotated[int, Field(gt=0, le=2**20)]
Rows = Annotated[int, Field(gt=0, le=10**12)]
Lookups = Annotated[float, Field(gt=0, le=1e6)]
MOST_TABLES = 100_000
"""Of a model."""


class Interaction(Strict):
    """How pooled vectors meet the dense features.

    Attributes:
        kind: dot: products of all pairs of vectors (DLRM); cross: layers of low rank over all vectors side by
            side (DCNv2); none: the vectors side by side.
        layers: of cross layers.
        rank: of their weights.
    """

    kind: Literal["dot", "cross", "none"] = "dot"
    layers: Annotated[int, Field(ge=0, le=1024)] = 0
    rank: Annotated[int, Field(ge=0, le=2**20)] = 0

    @model_validator(mode="after")
    def _sized(self) -> "Interaction":
        if (self.kind == "cross") != (self.layers * self.rank > 0):
            raise ValueError("cross layers need layers and rank, and nothing else has them")
        return self


class TablesModel(Strict):
    """A model of embedding tables and two MLPs.

    Attributes:
        dense: features that are numbers.
        width: of an embedding.
        bottom: outputs of the MLP over dense features; the last is ``width``.
        top: outputs of the MLP over the interaction.
        rows: of each table.
        lookups: rows that a sample reads of each table, in the mean; one for all tables where left out.
    """

    name: str
    aliases: Annotated[tuple[str, ...], Field(strict=False)] = ()
    source: str = ""
    dense: Width
    width: Width
    bottom: Annotated[tuple[Width, ...], Field(strict=False, min_length=1)]
    interaction: Interaction = Interaction()
    top: Annotated[tuple[Width, ...], Field(strict=False, min_length=1)]
    rows: Annotated[tuple[Rows, ...], Field(strict=False, min_length=1, max_length=MOST_TABLES)]
    lookups: Annotated[tuple[Lookups, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _agrees(self) -> "TablesModel":
        if self.bottom[-1] != self.width:
            raise ValueError(f"bottom ends with {self.bottom[-1]}, embeddings have width {self.width}")
        if self.lookups and len(self.lookups) != len(self.rows):
            raise ValueError(f"lookups: {len(self.lookups)} for {len(self.rows)} tables")
        return self

    @property
    def table_rows(self) -> Array:
        """Rows by table, shape (tables,)."""
        return np.array(self.rows, dtype=np.float64)

    @property
    def table_lookups(self) -> Array:
        """Rows that a sample reads, by table, shape (tables,)."""
        return np.array(self.lookups or (1.0,) * len(self.rows))

    @property
    def joined(self) -> int:
        """Width of the pooled vectors and the bottom MLP's output side by side."""
        return (len(self.rows) + 1) * self.width

    @property
    def interacted(self) -> int:
        """Inputs of the top MLP."""
        if self.interaction.kind == "dot":
            vectors = len(self.rows) + 1
            return self.width + vectors * (vectors - 1) // 2
        return self.joined

    @property
    def embeddings(self) -> int:
        """Parameters of all tables."""
        return sum(self.rows) * self.width


tables_models = Catalogue("recommendation model", Path(__file__).parent / "catalogue", TablesModel)
