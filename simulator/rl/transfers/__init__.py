"""Ways of the policy's weights from the trainer to the rollout engine, one YAML file each."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from core.loading import Catalogue
from core.quantities import NotNegative, Positive
from core.sources import Sourced


class WeightTransfer(Sourced):
    """How weights are gathered, sent and loaded."""

    UNSOURCED: ClassVar[frozenset[str]] = frozenset({"name", "title"})

    name: str
    title: str
    gather: Literal["tensor", "all"] = Field(
        description="tensor: an all-gather a tensor; all: launches overlap, bytes alone count"
    )
    send: Literal["tensor", "bucket"] = Field(
        description="unit of a broadcast, and of a call of the engine's loader"
    )
    bucket_bytes: Positive = Field(1e9, description="bytes of a bucket")
    pageable: bool = Field(
        False,
        description="one rank copies each gathered tensor to pageable host memory, from which weights are "
        "sent; the others wait for it in the next gather",
    )
    every_token: bool = Field(
        False, description="no weights move before rollouts: each token gathers the shards of all layers"
    )
    through_files: bool = Field(False, description="weights are written to the file system and read from it")
    share: float = Field(1.0, gt=0, le=1, description="share of the bytes that is sent (sparse deltas)")
    layer_walk_s: NotNegative = Field(
        description="host time of a loader call, for each layer: the engine lists all parameters by name, s"
    )


transfers = Catalogue("transfer of weights", Path(__file__).parent, WeightTransfer)
