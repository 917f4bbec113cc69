"""Devices joined by links, and the cost of a process group's collective on its actual links.

A cluster is a hierarchy. Inside a node (or a rack) are one or more levels of links, innermost first;
between them is a network that a node enters through its NICs.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from core.errors import InputError, UnknownNameError
from core.loading import Catalogue, Strict, build
from core.quantities import Count, NotNegative
from hwmodels.assumed import (
    HOST_SHARE,
    assumed_figures,
    with_assumptions,
)
from hwmodels.collectives.cost import Cost
from hwmodels.device import Device, devices
from hwmodels.levels import Level, Network
from hwmodels.node import FileSystem, Node
from hwmodels.rates import Rates
from hwmodels.topology import Topology
from hwmodels.usual_clusters import USUAL
from hwmodels.wiring import Wiring

EFA_V2_GBPS = 3200.0
"""Gb/s of a node from which its EFA is of the second generation (AWS EC2 P5 and P6 pages)."""


class Cluster(Strict):
    """Devices, the levels of links that join them, and the network between nodes."""

    name: str
    aliases: list[str] = Field(default_factory=list)
    description: str = ""
    device: Device
    devices_per_node: Count
    nodes: Count
    """Nodes available."""
    devices: Count
    """Number of devices in use, by default all; `resized` sets it."""
    levels: Annotated[list[Level], Field(min_length=1)]
    network: Network
    host_slowdown: Annotated[float, Field(ge=1)] = 1
    """Time of this host's CPU to launch kernels from Python, over the time of a Xeon 8480C."""
    unbound_slowdown: Annotated[float, Field(ge=1, le=100)] = 1.2
    """Time to launch a kernel from a process that is not bound to the cores beside its device (torchrun binds
    none), over that from one that is. Two sockets of x86: steps of Moonlight under Megatron Bridge's library
    recipe, all launches, on 8 H100 (MBSK-Rc to -Re)."""
    host_watts: NotNegative
    """Power of a node without its devices, W: processors, memory, fans, NICs."""
    node: Node | None = None
    """Host memory, local SSDs and links to them; `full_node` fills in what is left out."""
    file_system: FileSystem | None = None
    """The file system that all nodes share; `full_file_system` fills in what is left out."""
    sources: dict[str, str]
    assumed: list[str] = Field(default_factory=list)
    """Keys that the file leaves out, and the values assumed for them."""
    _link_pace: tuple[float, float] = PrivateAttr(default=(1.0, 1.0))

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: object, info: ValidationInfo) -> object:
        """Fill in the defaults; all devices are in use unless the file says otherwise."""
        if not isinstance(data, Mapping):
            return data
        if "groups" in data:
            raise ValueError("is a cluster of groups, which only scenarios of `meshwright simulate` take")
        data = _with_usual_links(data)
        filled = with_assumptions(data)
        per_node, nodes = data.get("devices_per_node"), data.get("nodes")
        # Where either is missing, only that one is reported.
        counted = isinstance(per_node, int) and isinstance(nodes, int)
        filled.setdefault("devices", per_node * nodes if counted else 1)  # type: ignore[operator]
        if "host_watts" not in data:
            filled["host_watts"] = 0.0
            with suppress(ValueError):  # an unknown device is reported by its own field
                device = filled["device"] = devices.find(data.get("device"), info)
                if isinstance(device, Device) and isinstance(per_node, int):
                    filled["host_watts"] = HOST_SHARE * per_node * device.tdp_watts
        return filled

    @field_validator("device", mode="before")
    @classmethod
    def _named_device(cls, value: object, info: ValidationInfo) -> object:
        """Find a device by name or path; a path is relative to the cluster's file."""
        return devices.find(value, info)

    @model_validator(mode="after")
    def _levels_nest(self) -> "Cluster":
        names = [level.name for level in self.levels]
        if len({*names, "device", "nic", "leaf", "spine", "network"}) < len(names) + 5:
            raise ValueError(f"levels: names must differ, and not be a part of the network's, found {names}")
        widths = [level.devices for level in self.levels]
        if any(wide % narrow or wide == narrow for narrow, wide in pairwise(widths)):
            raise ValueError(f"levels: each level must join whole blocks of the one before, found {widths}")
        if widths[-1] % self.devices_per_node:
            raise ValueError(
                f"levels: the last level must join whole nodes of {self.devices_per_node}, found {widths[-1]}"
            )
        if self.devices > self.nodes * self.devices_per_node:
            raise ValueError(f"devices: {self.nodes} nodes have fewer than {self.devices} devices")
        return self

    @property
    def domain(self) -> int:
        """Devices that communicate without a NIC: a node, or a rack for NVL72."""
        return self.levels[-1].devices

    @property
    def launch_slowdown(self) -> float:
        """Launch time on its hosts over that on hosts of H100 nodes: its own hosts' or its generation's."""
        return max(self.host_slowdown, self.device.generation.slower_hosts)

    @property
    def price_per_hour_usd(self) -> float:
        """List price of the devices in use."""
        return self.devices * self.device.price_per_hour_usd

    @property
    def network_error(self) -> float | None:
        """Median relative error of collectives across nodes on published rows; None without such rows."""
        return self.network.constants.median_error

    def power_watts(self, utilisation: float = 1.0) -> float:
        """Power of devices between idle (0) and their limit (1), with their share of the hosts."""
        device_watts = self.device.idle_watts + utilisation * (self.device.tdp_watts - self.device.idle_watts)
        return self.devices * device_watts + self.devices / self.devices_per_node * self.host_watts

    def nodes_for(self, count: int) -> int:
        """Nodes that hold `count` devices."""
        return -(-count // self.devices_per_node)

    def resized(self, count: int) -> "Cluster":
        """Return the same cluster with `count` devices in use.

        A level wider than a node (NVL72) is filled evenly: 128 devices are two racks of 64.

        Raises:
            InputError: the cluster has fewer devices, or `count` is not positive.
        """
        if not 0 < count <= self.nodes * self.devices_per_node:
            raise InputError(
                f"{self.name} has {self.nodes * self.devices_per_node} devices, asked for {count}"
            )
        levels = [self._filled(level, count) for level in self.levels]
        return self._with(devices=count, levels=levels)

    def _filled(self, level: Level, count: int) -> Level:
        if level.devices <= self.devices_per_node or count <= level.devices or count % self.devices_per_node:
            return level
        widths = range(level.devices, 0, -self.devices_per_node)
        return level.model_copy(update={"devices": next(w for w in widths if count % w == 0)})

    def reaching(self, share: float) -> "Cluster":
        """Return the same nodes with collectives at a share of what their links' constants say."""
        return self._with(levels=[level.model_copy(update={"reached": share}) for level in self.levels])

    def at_clock(self, hertz: float, where: str = "") -> "Cluster":
        """Return the same nodes with their devices at a lower clock; see `Device.at_clock`."""
        device = self.device.at_clock(hertz, where)
        return self if device is self.device else self._with(device=device)

    def with_network(
        self, nic_gbps_per_node: float, fabric: str | None = None, calibration: str | None = None
    ) -> "Cluster":
        """Return the same nodes with NICs whose total bandwidth is `nic_gbps_per_node` Gb/s.

        Args:
            nic_gbps_per_node: bandwidth of a node's NICs in one direction, Gb/s.
            fabric: kind of network; by default the same.
            calibration: measured constants of the fabric; by default those of its name.

        Raises:
            InputError: the bandwidth is not positive, or no such fabric.
        """
        nics = self.network.nics_per_node
        changed: dict[str, object] = {"nic_gbps": nic_gbps_per_node / nics}
        if fabric is not None and fabric != self.network.fabric:
            second = fabric == "efa" and nic_gbps_per_node >= EFA_V2_GBPS
            changed |= {"fabric": fabric, "calibration": "efa-v2" if second else None}
        if calibration:
            changed["calibration"] = calibration
        return self._with(network={**dict(self.network), **changed})

    def with_node(self, devices_per_node: int) -> "Cluster":
        """Return the same kind of cluster with another number of devices per node, behind the same NICs.

        Raises:
            InputError: fewer than two devices, or no number that the levels can join.
        """
        joined = {level.devices: level for level in self.levels[:-1] if level.devices < devices_per_node}
        last = self.levels[-1].model_copy(update={"devices": devices_per_node})
        nodes = max(self.nodes * self.devices_per_node // devices_per_node, 1)
        return self._with(
            devices_per_node=devices_per_node,
            nodes=nodes,
            devices=nodes * devices_per_node,
            levels=[*joined.values(), last],
        )

    def with_device(self, name: str) -> "Cluster":
        """Return the same cluster with another device."""
        return self._with(device=devices.get(name))

    def _with(self, **changed: object) -> "Cluster":
        return build(Cluster, {**dict(self), **changed}, f"cluster {self.name}")

    def paced(self, inside: float, across: float) -> "Cluster":
        """Return the same cluster with collectives that take longer: measured over calibrated time.

        Changes of the cluster (`resized`, ...) return one at its calibrated pace.

        Args:
            inside: factor of collectives that no NIC carries.
            across: factor of collectives across the network.
        """
        if (inside, across) == self._link_pace:
            return self
        cluster = self.model_copy()
        for derived in ("_wiring", "_rates"):
            vars(cluster).pop(derived, None)
        cluster._link_pace = inside, across
        return cluster

    @property
    def link_pace(self) -> tuple[float, float]:
        """Factors of collectives inside a domain and across the network; 1 as calibrated."""
        return self._link_pace

    def level_of(self, size: ArrayLike, stride: ArrayLike = 1) -> NDArray[np.int64]:
        """Return the index of the innermost level that contains such groups; ``len(levels)``: the network."""
        return self._wiring.outermost(size, stride)

    def collective(
        self,
        operation: str,
        bytes_: ArrayLike,
        size: ArrayLike,
        stride: ArrayLike = 1,
        concurrent: bool = True,
        in_switch: bool = True,
    ) -> NDArray[np.float64]:
        """Return the time of a collective, s; arguments broadcast.

        Args:
            operation: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_receive (of all
                neighbours at once), or chain (the mean of hops made one after the other).
            bytes_: the full buffer of each rank (what is gathered, reduced or sent), as nccl-tests counts.
            size: ranks in the group.
            stride: distance between neighbours of the group in device-rank order.
            concurrent: all devices are in such groups at the same time and share their node's NICs;
                otherwise one group is alone.
            in_switch: the library may reduce inside NVSwitches (NCCL_NVLS_ENABLE); integers never do.

        Raises:
            UnknownNameError: no such operation.
        """
        return self._wiring.cost(operation, bytes_, size, stride, concurrent, in_switch).seconds

    def collective_cost(
        self,
        operation: str,
        bytes_: ArrayLike,
        size: ArrayLike,
        stride: ArrayLike = 1,
        concurrent: bool = True,
        in_switch: bool = True,
    ) -> Cost:
        """Return the time of a collective, its link load and the bytes on each level.

        Arguments and errors are those of `collective`, which returns the seconds only.
        """
        return self._wiring.cost(operation, bytes_, size, stride, concurrent, in_switch)

    @property
    def domain_ring_s(self) -> float:
        """Seconds for which a ring of a domain of several devices sends a byte of a rank."""
        return self._wiring.domain_ring_s

    def hop_cost(self, bytes_: ArrayLike, stride: ArrayLike, level: ArrayLike) -> Cost:
        """Return the cost of sends between ranks `stride` apart across a level; arguments broadcast.

        All ranks of a block of `stride` neighbours send to the next block at the same time and share the
        NICs of their node.

        Args:
            bytes_: bytes that a rank sends.
            stride: distance between sender and receiver, in ranks.
            level: index of the level that joins both ranks; ``len(levels)``: the network.
        """
        return self._wiring.hop_cost(bytes_, stride, level)

    def level_between(self, stride: ArrayLike, block: ArrayLike, other: ArrayLike) -> NDArray[np.int64]:
        """Return the index of the innermost level that joins two blocks of `stride` ranks by their numbers.

        Block 0 holds the first `stride` ranks; ``len(levels)`` is the network. Arguments broadcast.
        """
        return self._wiring.level_between(stride, block, other)

    @property
    def rates(self) -> Rates:
        """Rates of copies, SSDs, file system and sends of its nodes; whoever moves bytes asks them."""
        return self._rates

    @cached_property
    def _rates(self) -> Rates:
        return Rates(self.device, self.node, self.file_system, self._wiring)

    @property
    def full_node(self) -> Node:
        """What a node has beside devices, with defaults for keys left out; `assumed_storage` lists them."""
        return self.rates.node

    @property
    def full_file_system(self) -> FileSystem:
        """The shared file system, with defaults for keys left out; `assumed_storage` lists them."""
        return self.rates.files

    @property
    def assumed_storage(self) -> list[str]:
        """What `full_node` and `full_file_system` assume, and which figures the file itself calls assumed."""
        stated = {"node": self.node, "file_system": self.file_system}
        assumed = [assumed_figures(name, part) for name, part in stated.items() if part is not None]
        return [*self.rates.assumed, *filter(None, assumed)]

    @cached_property
    def _wiring(self) -> Wiring:
        network, per_node = self.network, self.devices_per_node
        topology = Topology(self.name, self.levels, network, self.devices, per_node, self.nodes)
        return Wiring(topology, self._link_pace)

    @property
    def topology(self) -> Topology:
        """Routes between ranks, latency by hops, and the links that flows share."""
        return self._wiring.topology


class ClusterCatalogue(Catalogue[Cluster]):
    """The catalogue of clusters; the name of a device means the device's default cluster."""

    def get(self, reference: str | Path | Mapping[str, Any], where: str = "") -> Cluster:
        """Return the cluster that a name, a path or a mapping means.

        Raises:
            UnknownNameError: no such name (nearest one offered).
            InputError: the file or the definition is wrong.
        """
        if isinstance(reference, str) and self.resolve(reference) is None and devices.resolve(reference):
            return usual_cluster(reference)
        return super().get(reference, where)


clusters = ClusterCatalogue("cluster", Path(__file__).parent / "clusters", Cluster)


def usual_cluster(device: str) -> Cluster:
    """Return the default cluster of a device, given by name or alias.

    Raises:
        UnknownNameError: no such device, or a device without a known cluster.
    """
    name = devices.resolve(device) or device
    if name not in USUAL:
        raise UnknownNameError("device with a usual cluster", device, USUAL)
    cluster = clusters.get(USUAL[name])
    return cluster if cluster.device.name == name else cluster.with_device(name)


OTHER_KEYS = {"gpus_per_node": "devices_per_node", "gpu": "device"}
"""Other words for keys of a cluster."""
OF_NETWORK = {"nics": "nics_per_node", "nics_per_node": "nics_per_node", "nic_gbps": "nic_gbps"}
"""Keys of the network that may stand beside it."""


def _with_usual_links(data: Mapping[str, Any]) -> dict[str, Any]:
    """A short definition (device, nodes, NICs) with the links of the device's usual cluster.

    Levels and network that are not stated are those of that cluster; smaller nodes have NICs in proportion.

    Raises:
        ValueError: nodes of another size whose links do not follow from the usual ones.
    """
    filled = {OTHER_KEYS.get(key, key): value for key, value in data.items()}
    if isinstance(filled.get("devices"), str):
        filled["device"] = filled.pop("devices")
    name = devices.resolve(filled["device"]) if isinstance(filled.get("device"), str) else None
    if name is None or name not in USUAL or {"levels", "network"} <= filled.keys():
        return filled
    usual, stated, assumed = usual_cluster(name), filled.get("network", {}), filled.get("assumed", [])
    per_node = filled.setdefault("devices_per_node", usual.devices_per_node)
    if not isinstance(per_node, int) or not isinstance(stated, Mapping) or not isinstance(assumed, list):
        return filled
    words = "network" if "levels" in filled else "links"
    if "levels" not in filled:
        filled["levels"] = _levels_of(usual, per_node)
    of_network = {OF_NETWORK[key]: filled.pop(key) for key in OF_NETWORK if key in filled}
    in_proportion = max(1, usual.network.nics_per_node * per_node // usual.devices_per_node)
    filled["network"] = {**usual.network.model_dump(), "nics_per_node": in_proportion, **stated, **of_network}
    return {**filled, "assumed": [*assumed, f"{words}: those of {usual.name}"]}


def _levels_of(usual: Cluster, per_node: int) -> list[Level]:
    """Links inside nodes of so many devices, as of the usual cluster.

    PCIe and Ethernet are lanes of each device, which a smaller node has as well.

    Raises:
        ValueError: other links, in nodes of another size.
    """
    first = usual.levels[0]
    if per_node == usual.devices_per_node:
        return usual.levels
    lanes = len(usual.levels) == 1 and first.kind in ("pcie", "ethernet")
    if not lanes or not 1 <= per_node < usual.devices_per_node:
        raise ValueError(
            f"levels: must be stated for nodes of {per_node} {usual.device.name}, the links of {usual.name} "
            f"join {usual.domain}; such as [{{name: {first.name}, kind: {first.kind}, devices: {per_node}, "
            f"bandwidth: {first.bandwidth:g}}}]"
        )
    return [first.model_copy(update={"devices": per_node})]
