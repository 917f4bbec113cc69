"""The keys of a scenario of graph neural networks, and the checked question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from core.errors import InputError, located
from core.loading import Strict, build
from core.quantities import Few
from hwmodels.cluster import Cluster, clusters
from simulator.scenario import Reference, Variation, find

Width = Annotated[int, Field(gt=0, le=2**20)]
Vertices = Annotated[int, Field(gt=0, le=10**11)]


class GraphModel(Strict):
    """A network of equal layers, each of which sums over neighbours and multiplies by weights."""

    name: str = Field("gcn", description="of the network, in answers")
    layers: Annotated[int, Field(gt=0, le=4096)] = Field(description="of the network")
    hidden: Width = Field(description="numbers of a vertex between layers")
    products: Annotated[int, Field(gt=0, le=8)] = Field(
        1,
        description="products of a layer with weights hidden x hidden (GraphSAGE: 2, itself and neighbours)",
    )
    passes: Annotated[float, Field(ge=0, le=64)] = Field(
        3.0,
        description="passes of elementwise kernels over a layer's vertices (activation, dropout, residual)",
    )


class GraphWorkload(Strict):
    """One epoch over a graph."""

    kind: Literal["graph"] = Field(description="says that the question is one of graphs")
    vertices: Vertices = Field(description="of the graph")
    edges: Vertices = Field(description="directed, so that an undirected edge counts twice")
    features: Width = Field(description="numbers of a vertex at the input")
    classes: Width = Field(description="numbers of a vertex at the output")
    replicas: Annotated[float, Field(ge=0, le=4096)] = Field(
        1.0,
        description="copies of a vertex on other partitions, in the mean, because edges cross: what the "
        "partitioner reports",
    )
    dtype: Literal["fp32", "tf32", "fp16", "bf16"] = Field("fp32", description="format of the numbers")


class GraphLayout(Strict):
    """How an epoch is laid on devices, which are stages x partitions."""

    stages: Few = Field(1, description="groups of layers, through which chunks of vertices pass (GNNPipe)")
    chunks: Few = Field(1, description="of vertices that pass the stages one after the other")
    partitions: Few = Field(1, description="parts of the vertices, each on its own devices")

    @property
    def devices(self) -> int:
        """Devices of an epoch."""
        return self.stages * self.partitions


class GraphDefinition(Strict):
    """The keys of a scenario file of graphs."""

    title: str = Field("", description="the question in one line")
    model: GraphModel = Field(description="layers and widths")
    cluster: Reference = Field(description="catalogue name, path or mapping")
    workload: GraphWorkload = Field(description="the graph")
    layout: GraphLayout = Field(
        default_factory=lambda: GraphLayout.model_validate({}), description="how an epoch is laid on devices"
    )
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )


@dataclass(frozen=True)
class GraphSetting:
    """The fixed inputs of one epoch."""

    title: str
    model: GraphModel
    cluster: Cluster
    workload: GraphWorkload
    layout: GraphLayout


def make_graph(data: Mapping[str, Any], where: str, folder: Path) -> GraphSetting:
    """Turn the mapping of a scenario of graphs into its setting.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.

    Raises:
        InputError: a wrong key or value, or an unknown name; with the key path.
    """
    written = build(GraphDefinition, data, where)
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    layout, model, work = written.layout, written.model, written.workload
    if layout.stages > model.layers:
        raise InputError(
            f"must be at most the {model.layers} layers, found {layout.stages}", f"{where}: layout.stages"
        )
    if layout.chunks > 1 and layout.stages == 1:
        raise InputError(
            f"chunks pass stages; stages is 1; allowed: 1, found {layout.chunks}", f"{where}: layout.chunks"
        )
    if layout.chunks * layout.partitions > work.vertices:
        raise InputError(f"{work.vertices:,} vertices have no such parts", f"{where}: layout")
    with located(f"{where}: layout"):
        cluster = cluster.resized(layout.devices)
    return GraphSetting(written.title, model, cluster, work, layout)
