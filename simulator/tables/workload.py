"""The keys of a workload of recommendation models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from core.loading import Strict

Share = Annotated[float, Field(ge=0, lt=1)]


class TablesWorkload(Strict):
    """One batch."""

    kind: Literal["tables"] = Field(description="says that the question is one of embedding tables")
    batch: Annotated[int, Field(ge=1, le=2**30)] = Field(description="samples over all devices")
    passes: Literal["training", "scoring"] = Field("training", description="a training step, or scores alone")
    repeats: Share | None = Field(
        None,
        description="share of look-ups that read a row which the batch has read before; default: of rows "
        "drawn evenly",
    )
    embeddings: Literal["fp32", "fp16", "bf16"] = Field("fp32", description="format of the tables")
    exchange: Literal["fp32", "fp16", "bf16"] = Field("fp16", description="format of exchanged vectors")
    mlp: Literal["fp32", "tf32", "fp16", "bf16"] = Field("fp16", description="format of the MLPs' products")
    optimizer: Literal["sgd", "adagrad", "rowwise-adagrad"] = Field(
        "sgd", description="of the tables: its state is 0, 4, or 4 over the width bytes a number"
    )
