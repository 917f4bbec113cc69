"""Default cluster of a device, for measurements that name the device only."""

from __future__ import annotations

from hwmodels.cluster import Cluster, clusters
from hwmodels.device import devices
from hwmodels.errors import UnknownNameError

USUAL = {
    "a100-pcie-40gb": "fire-flyer-2",
    "a100-pcie-80gb": "fire-flyer-2",
    "a100-sxm-40gb": "dgx-a100-40gb",
    "a100-sxm-64gb": "leonardo",
    "a100-sxm-80gb": "dgx-a100-80gb",
    "a10g": "a10g-8",
    "a30": "a10g-8",
    "a40": "a6000-8",
    "a6000": "a6000-8",
    "a800-sxm-80gb": "hgx-a800",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gaudi2": "gaudi2-8",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "gh200": "gh200-node",
    "h100-96gb": "dgx-h100",
    "h100-nvl": "h200-nvl-8",
    "h100-pcie": "h100-pcie-8",
    "h100-sxm": "dgx-h100",
    "h20": "dgx-h100",
    "h200-nvl": "h200-nvl-8",
    "h200-sxm": "dgx-h200",
    "h800-sxm": "hgx-h800",
    "l20": "l40s-8-p2p",
    "l4": "l4-8",
    "l40s": "l40s-8-p2p",
    "mi210": "frontier",
    "mi250x-gcd": "frontier",
    "mi300x": "mi300x-8",
    "mi325x": "mi325x-8",
    "mi350x": "mi350x-8",
    "mi355x": "mi355x-8",
    "p100-16gb": "dgx-1p",
    "rtx-3090": "rtx-4090-8",
    "rtx-4090": "rtx-4090-8",
    "rtx-5090": "rtx-4090-8",
    "rtx-6000-ada": "l40s-8",
    "rtx-pro-4500": "rtx-pro-6000-8",
    "rtx-pro-6000": "rtx-pro-6000-8",
    "rtx-pro-6000-server": "rtx-pro-6000-8",
    "t4": "t4-8",
    "v100-16gb": "dgx-1v",
    "v100-32gb": "dgx-2",
}
"""The vendor's node of each device; where the catalogue lacks it, a node with the same links."""


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
