"""Measure what this machine really does: one call, points on disk.

``profile`` is the only entry point that the command line needs. torch is imported inside functions
only, so that importing this package costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from profiles.measure.result import Mode, ProfileResult, SkippedPoint

__all__ = ["Mode", "ProfileResult", "SkippedPoint", "profile", "profile_collectives"]


def profile(
    device: str = "cuda:0",
    mode: Mode = "quick",
    dtypes: Sequence[str] = (),
    out: str | Path = "points",
    *,
    name: str = "",
    operations: Sequence[str] = (),
    storage: str | Path | None = None,
    threads: int = 0,
    show_progress: bool = True,
    notice: Callable[[str], None] | None = None,
) -> ProfileResult:
    """Measure kernels on one device and write each point as soon as it is finished.

    Points that ``out`` already holds are not measured again, so a run that was interrupted goes on
    where it stopped. Ctrl-C ends the run in order: it returns with ``interrupted`` set, and what was
    finished is on disk.

    Args:
        device: "cpu", "cuda" or "cuda:N" (ROCm calls its devices cuda too).
        mode: "quick" (about 70 points) or "full" (about 300).
        dtypes: of "fp32", "tf32", "fp16", "bf16", "fp8"; empty means what suits the device.
        out: folder of the point files (CSV) and ``provenance.yaml``; made if missing.
        name: what the ``gpu`` column says; empty means the catalogue's name for the device found
            ("h200-sxm"), or "cpu".
        operations: names of the operations to measure, see ``profiles.measure.operations``; empty
            means all.
        storage: a folder on the NVMe drive to measure; without it no file copies are measured.
        threads: threads that torch computes with on a CPU; 0 leaves it torch's choice. Calibrate with
            as many as the work to be predicted uses.
        show_progress: draw a progress bar on stderr.
        notice: called with one line for each thing worth saying (a skipped point, a resumed run).

    Returns:
        How many points were measured, found finished and skipped, and why.

    Raises:
        InputError: no such device, CUDA is not there, a dtype that the device lacks, an unknown
            operation, or ``out`` holds points of another device.
    """
    from profiles.measure.machine import require_torch
    from profiles.measure.runner import run

    if threads:
        require_torch().set_num_threads(threads)
    drive = None if storage is None else Path(storage)
    return run(device, mode, tuple(dtypes), Path(out), name, tuple(operations), drive, show_progress, notice)


def profile_collectives(
    processes: int,
    out: str | Path = "points",
    *,
    device: str = "cuda",
    mode: Mode = "quick",
    operations: Sequence[str] = (),
    group_sizes: Sequence[int] = (),
    system: str = "",
    show_progress: bool = True,
) -> ProfileResult:
    """Measure collectives between processes that this call starts on this machine.

    Across machines, start ``python -m profiles.measure.collectives --out DIR`` under torchrun instead.

    Args:
        processes: how many; on GPUs one each.
        out: folder of the point files.
        device: "cuda" (NCCL, RCCL) or "cpu" (gloo).
        mode: "quick" measures one group of all processes, "full" every power of two and more sizes.
        operations: of "all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv"; empty
            means all.
        group_sizes: how many processes take part; empty means what the mode says.
        system: what the ``system`` column says; empty means the device's name.
        show_progress: draw a progress bar on stderr.

    Raises:
        InputError: fewer than two processes, more than there are GPUs, an unknown operation.
        MeshwrightError: a process failed; finished points are kept.
    """
    from profiles.measure.collectives import OPERATIONS, MeasurementRequest, launch

    selected = tuple(operations) or OPERATIONS
    request = MeasurementRequest(Path(out), mode, selected, tuple(group_sizes), system)
    return launch(request, processes, device, show_progress)
