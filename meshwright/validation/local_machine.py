"""This machine as a cluster: a device and links with constants from points measured here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.loading import build
from hwmodels.cluster import Cluster
from hwmodels.device import Device, devices
from profiles import points
from profiles.fitting import calibrate, write_calibration
from profiles.fitting.links import fit_links
from profiles.measure import profile, profile_collectives
from profiles.measure.machine import Machine, find
from profiles.measure.provenance import was_interrupted
from profiles.observed import observed_device

Say = Callable[[str], None]

OPERATIONS = (
    "gemm",
    "gemm_layouts",
    "attention",
    "attention_backward",
    "layer_norm",
    "gelu",
    "add",
    "embedding",
    "cross_entropy",
    "adam",
    "copy",
    "launch_eager",
)
"""Profile points required to predict the small GPT."""

ATTENTION = "sdpa"
"""Library of the small GPT's attention kernels."""


def measured_device(device: str, dtype: str, folder: Path, threads: int, say: Say) -> Device:
    """Calibrate a device of this machine from the points in a folder; measure them first if there are none.

    Args:
        device: "cpu", "cuda" or "cuda:N".
        dtype: to measure in.
        folder: of the points; the calibration is written beside them.
        threads: threads of a CPU; 0 takes those of the points, or torch's choice.
        say: called with every message, one line.

    Raises:
        InputError: no such device, points measured with another number of threads, or too few of them.
    """
    machine = find(device)
    if "gemm" not in points.files(folder) or was_interrupted(folder):
        say(f"measuring {machine.full_name} into {folder}")
        extra = ("sustained_gemm",) if machine.kind == "cuda" else ()
        names = OPERATIONS + extra
        result = profile(device, "quick", (dtype,), folder, operations=names, threads=threads, notice=say)
        if result.interrupted:
            raise KeyboardInterrupt
    shipped = machine.name in devices.names()
    described = devices.get(machine.name) if shipped else observed_device(folder)
    if machine.kind == "cpu" and threads not in (0, described.multiprocessors):
        raise InputError(f"was measured with {described.multiprocessors} threads, not {threads}", str(folder))
    return _calibrated(described, machine, folder, say)


def _calibrated(device: Device, machine: Machine, folder: Path, say: Say) -> Device:
    files = points.files(folder)
    attention = files.get("attention_prefill")
    has = attention is not None and ATTENTION in points.read(attention)["kernel"]
    defaults = {"attention_prefill": ATTENTION} if has else {}
    paths = [path for name, path in files.items() if name != "collectives"]
    fit = calibrate(paths, device, gpu=machine.name, defaults=defaults, say=say)
    for line in fit.missing:
        say(f"not fitted: {line}")
    path = folder / "calibration.yaml"
    write_calibration(fit, path)
    return build(Device, {**device.model_dump(), "calibration": str(path.resolve())}, str(path))


def measured_links(device: str, processes: int, folder: Path, say: Say) -> tuple[float, dict[str, Any]]:
    """Fit the links between processes of this machine to the collectives in a folder; measure them if needed.

    Returns:
        B/s of a device, and the definition of a ``LinkCalibration``.

    Raises:
        InputError: fewer devices than processes.
    """
    path = points.files(folder).get("collectives")
    if path is None or processes not in points.read(path)["n_gpus"]:
        folder = folder / f"collectives-{processes}"
        path = points.files(folder).get("collectives")
    if path is None:
        say(f"measuring collectives between {processes} processes into {folder}")
        profile_collectives(processes, folder, device=find(device).kind)
        path = points.files(folder)["collectives"]
    table = points.read(path)
    return fit_links(table.where(table["n_gpus"] <= processes), "this-machine", f"points in {path}")


def local_cluster(device: Device, count: int, links: tuple[float, dict[str, Any]] | None = None) -> Cluster:
    """Return a machine with ``count`` devices; links are used if there are several."""
    bandwidth, calibration = links or (1e9, "pcie4")
    level = {
        "name": "machine",
        "kind": "ethernet" if not device.generation.launches_ahead else "pcie",
        "devices": count,
        "bandwidth": bandwidth,
        "calibration": calibration,
    }
    network = {"fabric": "tcp", "nics_per_node": 1, "nic_gbps": 10.0, "nodes_per_leaf": 1}
    return build(
        Cluster,
        {
            "name": "this-machine",
            "device": device,
            "devices_per_node": count,
            "nodes": 1,
            "levels": [level],
            "network": network,
            "host_watts": 0.0,
            "sources": {"levels": "measured here; there is no network"},
        },
        "this machine",
    )
