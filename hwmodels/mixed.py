"""Clusters of several kinds of nodes: groups (homogeneous clusters) joined by a network.

A cluster of one group is written as a `Cluster`. Traffic inside a group uses the group's links and
constants; traffic between groups crosses the joining network, through dedicated NICs of every node.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from core.errors import InputError, UnknownNameError
from core.loading import Strict, build, read_mapping
from core.parsing import exists
from core.quantities import Count
from hwmodels.cluster import Cluster, clusters
from hwmodels.levels import Network


class NodeGroup(Strict):
    """Nodes of one kind."""

    name: str
    cluster: Cluster = Field(description="catalogue name, path or mapping of what the nodes are")
    nodes: Count = Field(description="nodes of the group, all in use")

    @field_validator("cluster", mode="before")
    @classmethod
    def _named(cls, value: object, info: ValidationInfo) -> object:
        return clusters.find(value, info)

    @property
    def devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.cluster.devices_per_node

    @cached_property
    def alone(self) -> Cluster:
        """The group as a `Cluster`."""
        return self.uniform(self.devices)

    def uniform(self, devices: int) -> Cluster:
        """Return a cluster of `devices` devices of this kind."""
        return self._sized(self.cluster, devices)

    def joined(self, devices: int, network: Network, together: int) -> Cluster:
        """Return a cluster of `devices` devices of this kind whose nodes are joined by another network.

        Args:
            devices: devices of the whole job.
            network: the joining network.
            together: maximum devices of a node that enter the network at the same time.
        """
        cluster = self.cluster
        if together < cluster.devices_per_node:
            # Where each device has NICs of its own, it sends by no other's.
            reached = together * max(network.nics_per_node / cluster.devices_per_node, 1.0)
            nics = min(network.nics_per_node, max(round(reached), 1))
            network = network.model_copy(update={"nics_per_node": nics})
            cluster = cluster.with_node(together)
        changed = {**dict(cluster), "network": network}
        return self._sized(build(Cluster, changed, f"group {self.name}"), devices)

    def _sized(self, cluster: Cluster, devices: int) -> Cluster:
        nodes = max(cluster.nodes_for(devices), self.nodes)
        changed = {"nodes": nodes, "devices": nodes * cluster.devices_per_node}
        return build(Cluster, {**dict(cluster), **changed}, f"group {self.name}").resized(devices)


class MixedCluster(Strict):
    """Groups of nodes, joined by a network."""

    name: str
    description: str = ""
    groups: Annotated[list[NodeGroup], Field(min_length=1)]
    join: Network = Field(
        description="network between groups: NICs that each node enters it with; `nodes_per_leaf` and "
        "`oversubscription` say how many nodes share a trunk, and how it is narrower than their NICs"
    )
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _different_names(self) -> "MixedCluster":
        names = [group.name for group in self.groups]
        if len({*names}) < len(names):
            raise ValueError(f"groups: names must differ, found {names}")
        return self

    @property
    def devices(self) -> int:
        """Devices of all groups."""
        return sum(group.devices for group in self.groups)

    @property
    def price_per_hour_usd(self) -> float:
        """List price of all devices."""
        return sum(group.alone.price_per_hour_usd for group in self.groups)

    def power_watts(self, utilisation: Mapping[str, float]) -> float:
        """Power of all nodes, with every group's devices between idle (0) and their power limit (1)."""
        return sum(group.alone.power_watts(utilisation[group.name]) for group in self.groups)

    def peak_flops(self, dtype: str) -> float:
        """Dense peak of all devices together, FLOP/s.

        Raises:
            InputError: a group's device lacks the number format; the message names the group.
        """
        total = 0.0
        for group in self.groups:
            try:
                total += group.cluster.device.peak(dtype) * group.devices
            except InputError as error:
                raise InputError(f"group {group.name!r}: {error.problem}") from None
        return total

    def group(self, name: str, where: str = "") -> NodeGroup:
        """Return a group by its name.

        Raises:
            UnknownNameError: no such group (nearest one offered).
        """
        for group in self.groups:
            if group.name == name:
                return group
        raise UnknownNameError("group", name, [group.name for group in self.groups], where)


def mixed_cluster(reference: object, where: str, folder: Path) -> MixedCluster | None:
    """Return the cluster of groups that a reference means; None where it means anything else.

    Raises:
        InputError: the file or the definition is wrong.
    """
    data = reference
    if isinstance(reference, str):
        path = folder / reference
        if reference in clusters.names() or not (exists(path) and path.is_file()):
            return None
        data, where, folder = read_mapping(path), str(path), path.parent
    if isinstance(data, MixedCluster):
        return data
    if not isinstance(data, Mapping) or "groups" not in data:
        return None
    return build(MixedCluster, data, where, folder)
