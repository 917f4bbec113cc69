"""From a cluster's levels and network to the link costs of process groups."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from core.errors import UnknownNameError
from hwmodels.collectives import direct, seconds
from hwmodels.collectives.calibration import FAMILIES
from hwmodels.collectives.call import CollectiveCalls, Floats, LinkCosts, Switch
from hwmodels.collectives.cost import Cost, Links
from hwmodels.collectives.group import Group, Ints, pairs, place
from hwmodels.collectives.traffic import traffic
from hwmodels.topology import PAIRED, Topology

LONG_BUFFER = 1e12
"""Bytes of a collective whose time is that of its bytes alone."""
LARGE = 2.0**50
"""Message size at which latency is negligible, B."""


class Wiring:
    """The calibrated links of one cluster.

    ``pace`` multiplies the time of collectives inside a domain and of those across the network.
    """

    def __init__(self, topology: Topology, pace: tuple[float, float] = (1.0, 1.0)) -> None:
        self.pace = pace
        self.topology, self.levels, self.network = topology, topology.levels, topology.network
        self.devices, self.devices_per_node = topology.devices, topology.devices_per_node
        self.widths = tuple(level.devices for level in self.levels)
        self.links = [level.constants for level in self.levels]
        self.fabric = self.network.constants
        self._tables = {family: self._by_level(family) for family in set(FAMILIES.values())}

    def place(self, size: ArrayLike, stride: ArrayLike) -> tuple[Group, tuple[int, ...]]:
        """Return the placement of groups as one-dimensional arrays, and the shape of the arguments."""
        sizes, strides = np.asarray(size, np.int64), np.asarray(stride, np.int64)
        if sizes.shape != strides.shape:
            sizes, strides = np.broadcast_arrays(sizes, strides)
        return place(sizes.ravel(), strides.ravel(), self.widths, self.devices), sizes.shape

    def outermost(self, size: ArrayLike, stride: ArrayLike) -> Ints:
        """Return the index of the innermost level that contains such groups; ``len(levels)``: the network."""
        group, shape = self.place(size, stride)
        return self._outermost(group).reshape(shape)

    def _outermost(self, group: Group) -> Ints:
        return np.where(group.domains > 1, len(self.levels), group.level)

    def _seconds(
        self, operation: str, buffer: Floats, group: Group, concurrent: bool, in_switch: bool
    ) -> Floats:
        crosses = group.domains > 1
        if crosses.all() or not crosses.any():
            far = bool(crosses.any())
            return self.pace[far] * seconds(self._call(operation, buffer, group, far, concurrent, in_switch))
        times = np.empty(buffer.shape)
        for far, mask in ((False, ~crosses), (True, crosses)):
            some = self._call(operation, buffer[mask], group.take(mask), far, concurrent, in_switch)
            times[mask] = self.pace[far] * seconds(some)
        return times

    @cached_property
    def domain_ring_s(self) -> float:
        """Seconds for which a ring of a domain of several devices sends a byte of a rank."""
        domain = self.widths[-1]
        ring_s = self.cost("all_gather", LONG_BUFFER, domain, 1, True, True).seconds
        return float(ring_s) / (LONG_BUFFER * (1 - 1 / domain))

    def hop_cost(self, bytes_: ArrayLike, stride: ArrayLike, level: ArrayLike) -> Cost:
        """Return time, busy links and bytes of sends over a level; see ``Cluster.hop_cost``."""
        buffer, strides, over = np.broadcast_arrays(np.asarray(bytes_, np.float64), stride, level)
        group = pairs(strides.ravel(), over.ravel(), self.widths)

        def times(sent: Floats) -> Floats:
            return self._seconds("send_receive", sent.ravel(), group, True, False).reshape(buffer.shape)

        def links() -> Links:
            levels = np.arange(len(self.widths) + 1).reshape(-1, *(1,) * over.ndim)
            rate = times(np.full(buffer.shape, LARGE)) / LARGE
            return Links(*(np.where(levels == over, part * buffer, 0.0) for part in (rate, 1.0)))

        return Cost(times(buffer), links)

    def level_between(self, stride: ArrayLike, block: ArrayLike, other: ArrayLike) -> Ints:
        """Return the innermost level that joins two blocks of ranks; see ``Cluster.level_between``."""
        blocks, width = np.asarray([block, other], np.int64), np.asarray(stride, np.int64)
        first, last = blocks.min(axis=0) * width, (blocks.max(axis=0) + 1) * width - 1
        return sum(
            ((first // level.devices != last // level.devices).astype(np.int64) for level in self.levels),
            np.zeros((), np.int64),
        )

    def cost(
        self,
        operation: str,
        bytes_: ArrayLike,
        size: ArrayLike,
        stride: ArrayLike,
        concurrent: bool,
        in_switch: bool,
    ) -> Cost:
        """Return time, busy links and bytes of collectives; see ``Cluster.collective_cost``."""
        if operation not in FAMILIES:
            raise UnknownNameError("collective", operation, FAMILIES)
        buffer, sizes, strides = np.broadcast_arrays(np.asarray(bytes_, np.float64), size, stride)
        group, shape = self.place(sizes, strides)

        def times(sent: Floats) -> Floats:
            return self._seconds(operation, sent.ravel(), group, concurrent, in_switch).reshape(shape)

        def links() -> Links:
            rate = times(np.full(shape, LARGE)) / LARGE
            outermost = self._outermost(group).reshape(shape)
            levels = np.arange(len(self.levels) + 1).reshape(-1, *(1,) * outermost.ndim)
            busy = np.where(levels == outermost, rate * buffer, 0.0)
            return Links(busy, traffic(operation, buffer, sizes, strides, self.widths))

        return Cost(times(buffer), links)

    def _call(
        self, operation: str, bytes_: Floats, group: Group, far: bool, concurrent: bool, in_switch: bool
    ) -> CollectiveCalls:
        return CollectiveCalls(
            operation=operation,
            bytes_=bytes_,
            size=group.size.astype(np.float64),
            domains=group.domains.astype(np.float64),
            leaves=self.topology.leaves(operation, group) if far else np.ones(group.size.shape),
            inside=self._inside(operation, group),
            network=self._across(operation, group, concurrent) if far else None,
            switch=self._switch(group) if in_switch else None,
        )

    def _by_level(self, family: str) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return start, step and seconds per byte, each (protocols, levels), own_copy, latency (levels,)."""
        protocols = [getattr(link, family) for link in self.links]
        bandwidth = np.array([level.bandwidth * level.reached for level in self.levels])
        start, step, efficiency = np.stack([p.table() for p in protocols], axis=-1)
        own_copy = np.array([p.own_copy for p in protocols])
        extra = np.array([level.extra_latency_s for level in self.levels])
        latency = np.maximum(extra, -step.min(axis=0))  # a hop's latency is never negative
        return start, step, 1 / (efficiency * bandwidth), own_copy, latency

    def _inside(self, operation: str, group: Group) -> LinkCosts:
        constants = self._tables[FAMILIES[operation]]
        if len(self.levels) > 1:
            constants = tuple(np.take(constant, group.level, axis=-1) for constant in constants)
        start, step, per_byte, own_copy, latency = constants
        if any(level.mesh for level in self.levels):
            peers = np.array([level.devices - 1 if level.mesh else 0 for level in self.levels])[group.level]
            # A send goes to one neighbour, over one link.
            partners = group.size / group.domains - 1
            used = np.maximum(1 if operation in direct.OPERATIONS else partners, 1)
            per_byte = per_byte * np.maximum(peers / used, 1)
        return LinkCosts(start, step, per_byte, own_copy, latency)

    def _across(self, operation: str, group: Group, concurrent: bool) -> LinkCosts:
        fabric, network = self.fabric, self.network
        per_device = network.bandwidth / self.devices_per_node
        usable = self.levels[-1].devices * per_device / (group.sharing if concurrent else 1)
        # A member reaches its own NIC, or its share of the node's NICs.
        reached = max(network.nic_gbps * 1e9 / 8, per_device) * group.size / group.domains
        usable = np.minimum(usable, reached)
        pairs = operation in direct.OPERATIONS
        if concurrent:
            shared = fabric.send_receive_shared_efficiency if pairs else fabric.shared_efficiency
            usable = usable * np.where(group.sharing > 1, shared, 1.0)
        if fabric.part_ring_shares is not None and concurrent and operation not in PAIRED:
            part = per_device * fabric.part_ring_shares * fabric.shared_efficiency
            shared = (group.sharing > 1) & (network.nic_gbps * 1e9 / 8 > per_device)
            usable = np.minimum(usable, np.where(shared, part, np.inf))
        if fabric.group_gbps is not None and operation not in PAIRED:
            nodes = self.levels[-1].devices / self.devices_per_node
            usable = np.minimum(usable, nodes * fabric.group_gbps * 1e9 / 8)
        if operation == "all_to_all":
            usable = usable * fabric.all_to_all_efficiency
        usable = usable / self.topology.uplink_load(operation, group)
        protocols = fabric.send_receive if pairs else fabric.collective
        start, step, efficiency = protocols.table()[:, :, np.newaxis]
        least = (start + step if pairs else step).min()  # the hop of a pair is part of its start
        latency = max(network.extra_latency_s, -least) + self.topology.forwarding_s(operation, group)
        crossing = self.topology.crossing_s
        return LinkCosts(start, step, 1 / (efficiency * usable), np.zeros(()), latency, crossing)

    def _switch(self, group: Group) -> Switch | None:
        calibrated = self.links[-1].in_switch
        if calibrated is None:
            return None
        outermost = group.level == len(self.levels) - 1
        usable = outermost & (group.size >= calibrated.from_ranks * group.domains)
        if not usable.any():
            return None
        start = np.where(usable, calibrated.start_s, np.inf)
        return Switch(start, np.array(1 / (self.levels[-1].bandwidth * calibrated.efficiency)))
