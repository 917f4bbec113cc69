"""State off the device: rates of copies and of updates on the host, and what they add to a step.

Copies run on engines of their own in both directions; host memory, SSDs and CPUs of a node serve its devices
together. Every time is that of one device while all devices of its node do the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.records import record
from simulator.layout.parameters import Parameters
from simulator.layout.stages import Stages
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.state.levels import StateKind
from simulator.state.place import StateClass, Update
from simulator.training.activations import kept_by_layers
from simulator.training.placement_shares import placed, share_on, unit_share, units_ahead
from simulator.training.sharding import Sharding

MOMENTS = 8.0
"""Bytes a parameter of Adam's two moments in 32 bits."""
CPU_ADAM_S_PER_BILLION = 0.25
"""Seconds of a node's CPUs for the Adam update of 1e9 parameters, where the cluster does not state it: 30
bytes a parameter (gradient, three values read and written, the 16-bit copy) at an assumed 120 GB/s."""

DEVICE_UPDATE = Update.model_validate({})


@record()
class TierRates:
    """Rates that one device gets of its node's tiers, B/s, and its part of the CPUs.

    ``adam`` is seconds a parameter that the CPUs need while they update those of all devices of a node.
    """

    out: float
    back: float
    adam: float
    ssd_read: float
    ssd_write: float
    remote_read: float
    remote_write: float

    @classmethod
    def of(cls, setting: Setting) -> TierRates:
        """The rates of a setting's cluster."""
        cluster = setting.cluster
        rates, nodes = cluster.rates, cluster.nodes_for(cluster.devices)
        devices = min(cluster.devices, cluster.devices_per_node)
        copy = rates.copies(devices) / devices
        adam = float(rates.node.cpu_adam_s_per_billion or CPU_ADAM_S_PER_BILLION) * 1e-9
        stored = rates.ssd_read, rates.ssd_write, rates.file_read(nodes), rates.file_write(nodes)
        return cls(copy, copy, adam * devices, *(rate / devices for rate in stored))


class Copies(NamedTuple):
    """Copies of one pass in one direction; seconds, shape (..., plans).

    Attributes:
        beside: beside kernels.
        in_turn: kernels wait for them.
        last: of those beside, the unit that has no kernels to run beside.
    """

    beside: np.ndarray
    in_turn: np.ndarray
    last: np.ndarray

    def exposed(self, window: np.ndarray) -> np.ndarray:
        """Seconds by which the copies beside ``window`` seconds of kernels extend them."""
        return self.beside - np.minimum(self.beside - self.last, window)

    def times(self, factor: np.ndarray) -> Copies:
        """The same copies a number of times."""
        return Copies(*(factor * each for each in self))

    def plus(self, other: Copies) -> Copies:
        """Both copies, on one stream."""
        return Copies(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


class HostUpdate(NamedTuple):
    """Seconds of each stream of an update, of one plan or many.

    Attributes:
        seconds: of the update.
        streams: busy seconds by stream.
        stages: streams that a sub-group of the host passes in turn, each while others do so with other
            sub-groups.
        share: what the device updates of the host's sub-groups.
        unit: share of a sub-group in all of them; 1: one after the other.
    """

    seconds: np.ndarray
    streams: dict[str, np.ndarray]
    stages: dict[str, np.ndarray]
    share: np.ndarray
    unit: np.ndarray


def best_share(host: np.ndarray, device: np.ndarray) -> np.ndarray:
    """The share of sub-groups whose update on the device is done when the host's is.

    ``max(x device, (1 - x) host)`` is least where both are equal; ``device`` counts the copies there and back
    (Maurya et al. 2024, Deep Optimizer States).

    Args:
        host: seconds of the whole update on the host.
        device: seconds of the whole update on the device, with both copies.
    """
    total = host + device
    return np.where(total > 0, host / np.where(total > 0, total, 1.0), 0.0)


class Offload:
    """What the tiers of each plan add to its step; arrays of shape (plans,).

    Args:
        sharding: of the plans.
        width: bytes of a working parameter.
        state: bytes a parameter of the optimizer's state.
    """

    def __init__(self, sharding: Sharding) -> None:
        self.sharding, self.setting = sharding, sharding.setting
        self.rates = TierRates.of(self.setting)
        self.width = self.setting.width
        self.state = float(self.setting.optimizer_bytes)
        self.gradient = float(self.setting.choices.gradient_bytes)

    def share(self, kind: StateClass, tier: str = "") -> np.ndarray:
        """Share of a class that lies on a tier, or off the device, shape (plans,)."""
        return share_on(self.sharding, kind, tier)

    def updates(self, name: str) -> np.ndarray:
        """A number of each plan's update; ``auto`` counts as -1."""

        def of(update: Update) -> float:
            value = getattr(update, name)
            return -1.0 if value == "auto" else float(value == "host" if name == "on" else value)

        return self.sharding.by_policy(lambda policy: of(policy.update or DEVICE_UPDATE))

    # ---- passes ------------------------------------------------------------------------------------

    def passes(
        self,
        activations: np.ndarray,
        unsharded: np.ndarray,
        layers: np.ndarray,
        forward: np.ndarray,
        backward: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exposed seconds of the copies of one micro batch in its two passes, shape (..., plans).

        A unit's copy is free while it takes no longer than the kernels beside it, but for the last one out
        and the first one back. Without prefetch kernels wait for every copy. In a pipeline a backward pass
        follows each forward pass, so that copies in either direction run beside both passes (Yuan et al.
        2024, Megatron-Kwai, schedules.py: schedule_1f1b_offload).

        Args:
            activations: bytes of activations that a micro batch keeps on a stage.
            unsharded: parameters of a stage, before sharding.
            layers: layers of a stage.
            forward, backward: seconds of the passes' kernels.
        """
        ahead, behind = self.copies(activations, unsharded, layers)

        def exposed(copies: tuple[Copies, Copies], window: np.ndarray) -> np.ndarray:
            beside = np.maximum(*(each.exposed(window) for each in copies))
            return beside + copies[0].in_turn + copies[1].in_turn

        apart = exposed(ahead, forward), exposed(behind, backward)
        piped = self.sharding.plans.pipeline > 1
        if not piped.any():
            return apart
        both = forward + backward
        (out, fetched), (left, back) = ahead, behind
        longest = np.maximum(out.beside + left.beside, fetched.beside + back.beside)
        shared = np.maximum(longest - both, 0.0)
        part = np.divide(forward, both, out=np.zeros(np.shape(both)), where=both > 0)

        def together(share: np.ndarray, copies: tuple[Copies, Copies], alone: np.ndarray) -> np.ndarray:
            return np.where(piped, share * shared + copies[0].in_turn + copies[1].in_turn, alone)

        return together(part, ahead, apart[0]), together(1 - part, behind, apart[1])

    def copies(
        self, activations: np.ndarray, unsharded: np.ndarray, layers: np.ndarray
    ) -> tuple[tuple[Copies, Copies], tuple[Copies, Copies]]:
        """Copies to and from the host in a forward and in a backward pass; arguments as in ``passes``."""
        fetched = self._copied(
            "parameters", self.width, unsharded, layers, self.sharding.parameters, back=True
        )
        left = self._copied("gradients", self.gradient, unsharded, layers, self.sharding.gradients)
        left = left.times(self.sharding.gradients)
        out, back = (
            self._copies("activations", self.share("activations") * activations, layers, 1.0, back=back)
            for back in (False, True)
        )
        return (out, fetched), (left, back.plus(fetched))

    def _copied(
        self,
        kind: StateKind,
        width: float,
        unsharded: np.ndarray,
        layers: np.ndarray,
        sharded: np.ndarray,
        back: bool = False,
    ) -> Copies:
        """Copies of a device's part of a class of state."""
        count = unsharded / np.where(sharded, self.sharding.group(kind).shard, 1)
        return self._copies(kind, self.share(kind) * width * count, layers, count, back)

    def _copies(
        self, kind: StateClass, size: np.ndarray, layers: np.ndarray, count: np.ndarray | float, back: bool
    ) -> Copies:
        seconds = size / self._rate(kind, back)
        ahead = units_ahead(self.sharding, kind) > 0
        last = seconds * unit_share(self.sharding, kind, layers, count)
        return Copies(seconds * ahead, seconds * ~ahead, last * ahead)

    def _rate(self, kind: StateClass, back: bool) -> np.ndarray:
        """Rate of a class out or back: that of SSDs or the file system where part of it lies there."""
        rates = self.rates
        link, drives, remote = (
            (rates.back, rates.ssd_read, rates.remote_read)
            if back
            else (rates.out, rates.ssd_write, rates.remote_write)
        )
        slow = np.where(self.share(kind, "nvme") > 0, min(link, max(drives, 1.0)), link)
        return np.where(self.share(kind, "file_system") > 0, np.minimum(slow, max(remote, 1.0)), slow)

    # ---- the update --------------------------------------------------------------------------------

    def update(self, owned: np.ndarray, on_device: np.ndarray) -> HostUpdate:
        """The update of a step, without what it runs beside.

        Args:
            owned: parameters whose state one device owns, shape (plans,).
            on_device: seconds of the optimizer of all of them on the device, shape (plans,).
        """
        rates = self.rates
        drives, remote = self.share("optimizer", "nvme"), self.share("optimizer", "file_system")
        off = self.share("optimizer")
        important = self.updates("important")
        every = self.updates("every")
        on_host = self.updates("on") > 0
        host_updated = owned * off * (1 - important)
        adam = host_updated * rates.adam
        master = self.updates("master_on_device") > 0
        state = np.where(master, MOMENTS, self.state)
        fetch = host_updated * state
        there_and_back = fetch / rates.back + fetch / rates.out + on_device * off * (1 - important)
        stated = self.updates("share_on_device")
        share = np.where(stated < 0, best_share(adam, there_and_back), stated)
        share = np.where(on_host, share, off > 0)
        gradient, weight = (np.where(master, 4.0, width) for width in (self.gradient, self.width))
        down = np.where(self.share("gradients") > 0, 0.0, host_updated * gradient / rates.out)
        up = host_updated * (1 - self.share("parameters")) * weight / rates.back
        stages = {
            "to host": (1 - share) * down / every,
            "cpu": (1 - share) * adam / every,
            "from host": (1 - share) * up / every,
            "ssd": self._stored(owned * drives * state, rates.ssd_read, rates.ssd_write),
            "file system": self._stored(owned * remote * state, rates.remote_read, rates.remote_write),
        }
        streams = stages | {
            "to host": share * fetch / rates.out / every + stages["to host"],
            "from host": share * fetch / rates.back / every + stages["from host"],
            "device": on_device * ((1 - off) + off * important + off * (1 - important) * share),
        }
        device = streams["device"] + share * (fetch / rates.out + fetch / rates.back) / every
        one_by_one = (self.updates("pipelined") == 0) | (units_ahead(self.sharding, "optimizer") == 0)
        unit = np.where(one_by_one, 1.0, unit_share(self.sharding, "optimizer", self._layers(), owned))
        # SSDs and the file system hold different sub-groups and work side by side.
        passed = [stages[name] for name in ("to host", "cpu", "from host")]
        passed.append(np.maximum(stages["ssd"], stages["file system"]))
        longest = np.maximum.reduce(passed)
        host = longest + unit * (np.sum(passed, axis=0) - longest)
        return HostUpdate(np.maximum(device, host), streams, stages, share, unit)

    def _layers(self) -> np.ndarray:
        """Layers of a device, in the mean of its pipeline, shape (plans,)."""
        return self.setting.model.layers / self.sharding.plans.pipeline

    def _stored(self, size: np.ndarray, read: float, write: float) -> np.ndarray:
        """Seconds to read and write so many bytes; reads and writes share the drives."""
        seconds = size * (1 / max(read, 1.0) + 1 / max(write, 1.0))
        return np.where(size > 0, seconds, 0.0)

    def exposed_update(self, update: HostUpdate, beside: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Seconds that the update adds to a step.

        Args:
            update: of the plans.
            beside: seconds of the backward pass whose gradients sub-groups wait for, shape (plans,).
            step: seconds of the rest of the step, shape (plans,).
        """
        deferred = self.updates("every") > 1
        late = (self.updates("delayed") > 0) | deferred
        early = self.updates("beside_backward") > 0
        window = np.where(late, step, np.where(early, beside, 0.0))
        # Kernels of the update run behind those of the step.
        on_device = np.where(late | early, update.streams["device"], 0.0)
        return on_device + np.maximum(update.seconds - on_device - window, 0.0)


def update_exposed(
    sharding: Sharding, owned: np.ndarray, optimizer: np.ndarray, backward: np.ndarray, rest: np.ndarray
) -> np.ndarray | float:
    """Seconds that an update off the device adds to that of all state on it, shape (plans,).

    Args:
        sharding: of the plans.
        owned: parameters whose state one device owns.
        optimizer: seconds of the optimizer of all of them on the device.
        backward: seconds of a backward pass of one micro batch.
        rest: seconds of the step without the update.
    """
    if not placed(sharding):
        return 0.0
    offload = Offload(sharding)
    return offload.exposed_update(offload.update(owned, optimizer), backward, rest) - optimizer


def copied_exposed(
    sharding: Sharding, stages: Stages, counts: Parameters, forward: np.ndarray, backward: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Exposed seconds of copies between tiers in a forward and a backward pass of a micro batch.

    Shape (classes, plans).

    Args:
        sharding: of the plans.
        stages: of the plans.
        counts: parameters of each class of stage.
        forward, backward: seconds of the kernels of a micro batch, shape (classes, plans).
    """
    none = np.zeros(stages.index.shape)
    if not placed(sharding):
        return none, none
    activations = kept_on_stages(sharding.setting, sharding.plans, stages, counts)
    return Offload(sharding).passes(activations, counts.total, stages.total, forward, backward)


def kept_on_stages(setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> np.ndarray:
    """Bytes of activations that one micro batch keeps on each class of stage, shape (classes, plans)."""
    layers = kept_by_layers(setting, plans, stages.groups, counts.ops)
    parts = (stages.layers[:, number] * layer.between_passes for number, layer in enumerate(layers))
    return sum(parts, np.zeros(stages.index.shape))


def binding(update: HostUpdate, index: int) -> str:
    """The stream of a plan's update that takes longest."""
    return max(update.streams, key=lambda name: float(update.streams[name][index]))
