"""Rates at which the nodes of a cluster move bytes: one set, which every reader of a wire asks.

Copies to and from hosts, local SSDs, the shared file system and sends between devices, as payload, each way.
Each limit names its source: the cluster's file, the calibration of the device or of the links, or what is
assumed where the file is silent.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from core.sources import Kind
from hwmodels.assumed import file_system_with_assumptions, node_with_assumptions
from hwmodels.wiring import LARGE, Wiring

if TYPE_CHECKING:
    from hwmodels.device import Device
    from hwmodels.node import FileSystem, Node


class Limit(NamedTuple):
    """One rate with its source.

    Attributes:
        bytes_s: B/s.
        source: document, measurement or assumption.
        kind: of the source: measured, read, derived or assumed.
    """

    bytes_s: float
    source: str
    kind: Kind


class Rates:
    """Rates of one cluster, B/s.

    Args:
        device: of its nodes.
        node, file_system: what its file states; None: nothing.
        wiring: of its levels and network.
    """

    def __init__(
        self, device: Device, node: Node | None, file_system: FileSystem | None, wiring: Wiring
    ) -> None:
        self._device, self._wiring = device, wiring
        self._stated_node, self._stated_files = node, file_system
        self._network = wiring.network
        self.devices_per_node = wiring.devices_per_node

    # ---- what the cluster's file states, filled in -----------------------------------------------------

    @cached_property
    def _node(self) -> tuple[Node, list[str]]:
        return node_with_assumptions(self._stated_node, self.devices_per_node, self.link)

    @cached_property
    def _files(self) -> tuple[FileSystem, list[str]]:
        return file_system_with_assumptions(self._stated_files, self._wiring.topology.nodes, self.nics)

    @property
    def node(self) -> Node:
        """What a node has beside devices, with defaults for keys left out."""
        return self._node[0]

    @property
    def files(self) -> FileSystem:
        """The shared file system, with defaults for keys left out."""
        return self._files[0]

    @property
    def assumed(self) -> list[str]:
        """What `node` and `files` assume where the cluster's file is silent."""
        return [*self._node[1], *self._files[1]]

    # ---- host copies -------------------------------------------------------------------------------------

    @cached_property
    def link(self) -> float:
        """Between one device and its host, one way."""
        return self._device.kernels.calibration.host_copy.bandwidth

    def copies(self, devices: int) -> float:
        """Of neighbouring devices that copy to or from their hosts at once, together, one way.

        A device is limited by its own link, those behind one PCIe root by the root's, all of a node by
        `host_copy_bytes_s`.

        Args:
            devices: from the first of a node on; those of whole nodes have their hosts each.
        """
        nodes, rest = divmod(devices, self.devices_per_node)
        return nodes * self._copies(self.devices_per_node) + self._copies(rest)

    def _copies(self, devices: int) -> float:
        """Of devices of one node; those behind the fullest root are the last to end."""
        per_node = self.devices_per_node
        behind = ceil(per_node / (self.node.pcie_roots or per_node))
        root = float(self.node.host_copy_bytes_s or 0.0) * behind / per_node
        return devices * min(self.link, root / max(min(behind, devices), 1))

    # ---- SSDs and the file system ------------------------------------------------------------------------

    @property
    def ssd_read(self) -> float:
        """Of all SSDs of a node into its devices or host memory; 0 without SSDs."""
        drives = self.node.ssds
        return drives.count * drives.read_bytes_s if drives else 0.0

    @property
    def ssd_write(self) -> float:
        """To all SSDs of a node; 0 without SSDs."""
        drives = self.node.ssds
        return drives.count * drives.write_bytes_s if drives else 0.0

    def file_read(self, nodes: int) -> float:
        """Of one of ``nodes`` nodes that read from the shared file system at once."""
        files = self.files
        return min(files.client_read_bytes_s or files.read_bytes_s, files.read_bytes_s / nodes)

    def file_write(self, nodes: int) -> float:
        """Of one of ``nodes`` nodes that write to the shared file system at once."""
        files = self.files
        return min(files.client_write_bytes_s or files.write_bytes_s, files.write_bytes_s / nodes)

    # ---- sends between devices ---------------------------------------------------------------------------

    @property
    def wire(self) -> float:
        """What one node's NICs carry, payload or not."""
        return self._network.bandwidth

    @cached_property
    def nics(self) -> float:
        """Payload of one node's NICs, in or out, all its devices together."""
        return self.sends(self.devices_per_node)

    def sends(self, devices: int, level: int | None = None) -> float:
        """Payload of neighbouring devices that send to as many others at once, together.

        It is the rate of pipeline stages' sends of the same bytes (`Cluster.hop_cost`), without their start.

        Args:
            devices: that send.
            level: index of the level that joins both sides; by default the network.
        """
        levels = self._wiring.levels
        across = len(levels) if level is None else level
        seconds = self._wiring.hop_cost(LARGE, min(devices, levels[-1].devices), across).seconds
        return devices * LARGE / float(seconds)

    # ---- sources -----------------------------------------------------------------------------------------

    def limits(self) -> dict[str, Limit]:
        """Every limit by name, with its source and kind."""
        copy = self._device.kernels.calibration.host_copy
        link = Limit(self.link, copy.source, "measured" if copy.status == "measured" else "assumed")
        network, fabric = self._network, self._network.constants
        origins = fabric.origins
        payload = origins.get("send_receive.simple.efficiency")
        if payload is not None and payload.source == "as collective":
            payload = origins.get("collective.simple.efficiency", payload)
        wire = f"{network.nics_per_node} x {network.nic_gbps:g} Gb/s, of which payload"
        files = self.files
        return {
            "device to host": link,
            "host copies of a node": self._stated(
                "host_copy_bytes_s", self.copies(self.devices_per_node), link.source
            ),
            "SSDs of a node, read": self._stated("ssds.read_bytes_s", self.ssd_read),
            "SSDs of a node, write": self._stated("ssds.write_bytes_s", self.ssd_write),
            "file system, read": self._shared("read_bytes_s", files.read_bytes_s),
            "file system, write": self._shared("write_bytes_s", files.write_bytes_s),
            "file system, read by a node": self._shared("client_read_bytes_s", self.file_read(1)),
            "file system, write by a node": self._shared("client_write_bytes_s", self.file_write(1)),
            "NICs of a node, each way": Limit(
                self.nics,
                f"{wire} as {fabric.name}: {payload.source if payload else fabric.provenance}",
                payload.kind if payload else "assumed",
            ),
        }

    def _stated(self, key: str, rate: float, otherwise: str = "") -> Limit:
        """A limit of the node: as its file says, else as assumed."""
        origin = self._stated_node.origins.get(key) if self._stated_node else None
        if origin is not None:
            return Limit(rate, origin.source, origin.kind)
        words = "; ".join(line.removeprefix("node: ") for line in self._node[1] if _about(key, line))
        return Limit(rate, "; ".join(filter(None, (words, otherwise))), "assumed")

    def _shared(self, key: str, rate: float) -> Limit:
        """A limit of the file system: as its file says, else as assumed."""
        stated = self._stated_files
        origin = stated.origins.get(key) if stated else None
        if origin is not None:
            return Limit(rate, origin.source, origin.kind)
        if key.startswith("client"):
            return Limit(rate, "the node's NICs, or all of the file system", "assumed")
        return Limit(rate, "; ".join(self._files[1]).removeprefix("file_system: "), "assumed")


def _about(key: str, line: str) -> bool:
    return "SSD" in line if key.startswith("ssds") else "PCIe root" in line
