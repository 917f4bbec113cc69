"""Copies of the activations that a pipeline schedule offloads."""

from __future__ import annotations

from simulator.setting import Setting


def offloaded_seconds(setting: Setting, stride: int, size: float, window: float) -> float:
    """Seconds of a copy of a device to its host, once in ``window`` seconds of its kernels.

    Devices of a stage copy at once; those of other stages behind the same root as often as this one, so
    that it shares the root for the part of the window in which they copy.

    Args:
        setting: of the step.
        stride: devices between neighbouring pipeline ranks.
        size: bytes of a device.
        window: seconds.
    """
    cluster = setting.cluster
    devices = min(cluster.devices, cluster.devices_per_node)
    of_stage = min(stride, devices)
    overhead = setting.kernels.calibration.host_copy.overhead_s
    alone, shared = (size * count / cluster.rates.copies(count) for count in (of_stage, devices))
    busy = (shared - alone) / window if window > 0 else 1.0
    return overhead + (min(shared, alone / (1.0 - busy)) if busy < 1.0 else shared)
