"""The links of a cluster: levels inside a node or a rack, and the network between nodes."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, field_validator

from core.errors import InputError
from core.loading import Catalogue, Strict
from core.quantities import Bandwidth, Count, Gigabits, Latency
from hwmodels.collectives.calibration import (
    DispatchRates,
    FabricCalibration,
    LinkCalibration,
    fabric_calibrations,
    link_calibrations,
)

Reference = TypeVar("Reference", str, str | dict[str, Any])
Fabric = Literal["infiniband", "roce", "slingshot", "efa", "omni-path", "tcp"]


def _found(catalogue: Catalogue, reference: Reference) -> Reference:
    """Return the reference; errors are raised for pydantic to report with the key path."""
    try:
        catalogue.get(reference)
    except InputError as error:
        raise ValueError(str(error)) from None
    return reference


class Level(Strict):
    """Links that join devices inside a node or a rack."""

    name: str
    kind: Literal["nvlink", "nvswitch", "pcie", "infinity-fabric", "ethernet"]
    devices: Count
    """Devices that one block of this level joins."""
    bandwidth: Bandwidth
    """B/s per direction of a device over this level; sends and receives run at the same time."""
    latency_s: Latency | None = None
    """Latency of one hop from device to device, s; by default the calibration's."""
    mesh: bool = False
    """Whether every pair has dedicated links: n devices then use (n - 1) of the (devices - 1) shares."""
    reached: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Speed of the library's collectives over these links, over that of the calibration's constants."""
    calibration: str | dict[str, Any]
    """Name of the measured constants of these links, or the constants themselves."""

    @field_validator("calibration")
    @classmethod
    def _known(cls, value: str | dict[str, Any]) -> str | dict[str, Any]:
        return _found(link_calibrations, value)

    @property
    def constants(self) -> LinkCalibration:
        """The measured constants of these links."""
        return link_calibrations.get(self.calibration)

    def dispatcher(self, library: str) -> tuple[tuple[float, float], ...]:
        """Ranks, and speed of a library's dispatch among them over an all-to-all; 1 where not measured."""
        rates = self.constants.dispatchers.get(library)
        if rates is None:
            return ((2.0, 1.0),)
        faster = max(rates.links_per_s / self.bandwidth, 1.0) if rates.links_per_s else 1.0
        return tuple(
            (ranks, min(share * faster, max(share, 1.0)))
            for ranks, share in zip(rates.ranks, rates.share, strict=True)
        )

    def combined_per_s(self, library: str) -> float | None:
        """Copies that a rank's combination reads a second at most; None where not measured."""
        rates = self.constants.dispatchers.get(library)
        return rates.combined_per_s if rates else None

    @property
    def latency(self) -> float:
        """Seconds of one hop from device to device."""
        return self.constants.latency_s if self.latency_s is None else self.latency_s

    @property
    def extra_latency_s(self) -> float:
        """Latency of a hop minus the calibration's; negative where it is lower."""
        return self.latency - self.constants.latency_s


GPU_INITIATED = DispatchRates(share=1.02)
"""Rates of DeepEP where GPUs post sends: copies to all nodes, the own included, over the rate of a NIC: 51 of
50 GB/s with 64 ranks; 43 to 58 with 16 and 32 (DeepEP, docs/legacy.md)."""


class Network(Strict):
    """The network between nodes, entered through each node's NICs."""

    fabric: Fabric
    nics_per_node: Count
    nic_gbps: Gigabits
    """Gb/s of one NIC, each direction."""
    latency_s: Latency | None = None
    """One-way latency from device to device below one leaf; by default that of the fabric's calibration."""
    shape: Literal["fat-tree", "rails", "dragonfly"] = "fat-tree"
    """rails: NIC i of every node of a group meets on leaf switch i."""
    nodes_per_leaf: Count
    """Nodes below one leaf switch (fat-tree), one set of rail switches (rails) or one group (dragonfly)."""
    oversubscription: Annotated[float, Field(ge=1)] = 1
    """Oversubscription: bandwidth from the nodes into a leaf over bandwidth from the leaf to the spine."""
    calibration: str | None = None
    """Name of the fabric's measured constants; by default those of its kind."""

    @field_validator("calibration")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        return value if value is None else _found(fabric_calibrations, value)

    @property
    def constants(self) -> FabricCalibration:
        """The measured constants of this fabric."""
        return fabric_calibrations.get(self.calibration or self.fabric)

    def dispatcher(self, library: str) -> DispatchRates:
        """Rates of a library's token dispatch; on fabrics without a measurement as on InfiniBand."""
        return self.constants.dispatchers.get(library, GPU_INITIATED)

    @property
    def latency(self) -> float:
        """Seconds one way from device to device below one leaf."""
        return self.constants.latency_s if self.latency_s is None else self.latency_s

    @property
    def extra_latency_s(self) -> float:
        """Latency minus the calibration's; negative where it is lower."""
        return self.latency - self.constants.latency_s

    @property
    def bandwidth(self) -> float:
        """B/s that one node's NICs carry together, each direction."""
        return self.nics_per_node * self.nic_gbps * 1e9 / 8
