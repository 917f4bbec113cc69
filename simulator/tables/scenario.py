"""The keys of a scenario of embedding tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from core.errors import InputError
from core.loading import Strict, build
from hwmodels.cluster import clusters
from simulator.scenario import Reference, Variation, find
from simulator.tables.libraries import tables_libraries
from simulator.tables.models import tables_models
from simulator.tables.setting import TablesSetting
from simulator.tables.shards import Shards
from simulator.tables.workload import TablesWorkload


class TablesDefinition(Strict):
    """The keys of a scenario file of embedding tables."""

    title: str = Field("", description="the question in one line")
    model: Reference = Field(description="catalogue name, path or mapping")
    cluster: Reference = Field(description="catalogue name, path or mapping")
    gpus: Annotated[int, Field(ge=1, le=2**20)] | None = Field(
        None, description="devices; default: all of the cluster"
    )
    workload: TablesWorkload = Field(description="what a batch is")
    shards: Shards = Field(
        default_factory=lambda: Shards.model_validate({}), description="how tables are laid on devices"
    )
    library: Reference = Field("hugectr", description="what trains the model: name, path or mapping")
    variations: dict[str, Variation] = Field(
        default_factory=dict, description="named changes to ask `whatif` about"
    )


def make_tables(data: Mapping[str, Any], where: str, folder: Path) -> TablesSetting:
    """Turn the mapping of a scenario of embedding tables into its setting.

    Args:
        data: keys and values as in a file.
        where: name of the source in errors.
        folder: base of relative paths.

    Raises:
        InputError: a wrong key or value, or an unknown name; with the key path.
    """
    written = build(TablesDefinition, data, where)
    model = find(tables_models, written.model, folder, f"{where}: model")
    library = find(tables_libraries, written.library, folder, f"{where}: library")
    cluster = find(clusters, written.cluster, folder, f"{where}: cluster")
    devices = written.gpus or cluster.nodes * cluster.devices_per_node
    cluster = cluster.resized(devices)
    work, shards = written.workload, written.shards
    if work.batch < devices:
        raise InputError(
            f"must be at least one sample a device ({devices:,}), found {work.batch:,}",
            f"{where}: workload.batch",
        )
    if shards.pieces and shards.kind not in ("row", "column"):
        raise InputError(
            f"only row and column shards have pieces; kind is {shards.kind}", f"{where}: shards.pieces"
        )
    if shards.pieces and shards.pieces > devices:
        raise InputError(
            f"must be at most the {devices:,} devices, found {shards.pieces:,}", f"{where}: shards.pieces"
        )
    if work.optimizer != "sgd" and work.passes == "scoring":
        raise InputError("scores have no optimizer; allowed: sgd (none)", f"{where}: workload.optimizer")
    return TablesSetting(written.title, model, cluster, devices, work, shards, library)
