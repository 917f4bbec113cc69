"""Libraries that train recommendation models, one YAML file each: how they cut tables, what they hide."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from core.loading import Catalogue
from core.quantities import NotNegative
from core.sources import Sourced


class TablesLibrary(Sourced):
    """What a library does, beside the ops of the model."""

    UNSOURCED: ClassVar[frozenset[str]] = frozenset({"name", "title"})

    name: str
    title: str
    split: Literal["rows", "columns"] = Field(
        description="how a table that is too large for one device is cut"
    )
    hierarchical: bool = Field(description="whether sums within a node precede the exchange between nodes")
    launch_s: NotNegative = Field(description="host time of a kernel, s; 0 where a graph launches the step")
    dealt_key_s: NotNegative = Field(description="device time in which a key finds its device, s")
    sorted_key_s: NotNegative = Field(description="device time of a key in the sort before the update, s")
    fused: bool = Field(description="whether biases and activations run in the products' kernels")
    overlapped: bool = Field(
        description="whether the bottom MLP, keys of the next batch and gradients of MLPs hide exchanges"
    )
    async_wgrad: bool = Field(
        description="whether products of weights' gradients run beside the exchange of vectors' gradients"
    )


tables_libraries = Catalogue("tables library", Path(__file__).parent, TablesLibrary)
