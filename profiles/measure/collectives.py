"""Collectives between the devices of a machine, or of many machines under torchrun.

On one machine ``launch`` starts the processes itself. On several:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint HOST:29500 \\
        -m profiles.measure.collectives --out points

NCCL (RCCL) carries them on GPUs, gloo on CPUs. ``bytes`` is the whole buffer of one rank, as nccl-tests
counts it: what is gathered, reduced or exchanged, not the part that each rank contributes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InputError, MeshwrightError, UnknownNameError
from profiles import points
from profiles.measure import machine
from profiles.measure.bench import BYTES_PER_ELEMENT, TORCH_NAMES, BenchPoint, Values
from profiles.measure.machine import Machine, require_torch
from profiles.measure.processes import BACKENDS, run_ranks
from profiles.measure.progress import progress
from profiles.measure.provenance import Provenance
from profiles.measure.result import ProfileResult, SkippedPoint
from profiles.measure.store import PointStore, reason
from profiles.measure.timing import NOISY, REPEATS, Call, Timing, summary

if TYPE_CHECKING:
    import torch

KIB, MIB = 2**10, 2**20
WARM_UP_CALLS = 3
TARGET_SECONDS = 0.02  # one repeat
MAX_CALLS = 200

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv")


@dataclass(frozen=True)
class MeasurementRequest:
    """Measurement request; equal on all ranks.

    Attributes:
        out: folder of the point files.
        mode: "quick" measures groups of all ranks, "full" every power of two and twice the sizes.
        operations: of ``OPERATIONS``.
        group_sizes: empty means what the mode says.
        system: what the ``system`` column says; empty means the device's name.
    """

    out: Path
    mode: str = "quick"
    operations: tuple[str, ...] = OPERATIONS
    group_sizes: tuple[int, ...] = ()
    system: str = ""

    def sizes(self, kind: str) -> list[int]:
        """Buffer sizes in bytes: 1 KiB to 1 GiB on GPUs, to 16 MiB on CPUs."""
        step, largest = (2 if self.mode == "full" else 4), (1024 * MIB if kind == "cuda" else 16 * MIB)
        sizes = [KIB]
        while sizes[-1] * step <= largest:
            sizes.append(sizes[-1] * step)
        return sizes

    def groups(self, world: int) -> list[int]:
        """Sizes of the groups to measure."""
        if self.group_sizes or self.mode == "quick":
            return list(self.group_sizes) or [world]
        powers = [2**power for power in range(1, world.bit_length()) if 2**power < world]
        return [*powers, world]

    def check(self, world: int) -> None:
        """Check against the number of ranks.

        Raises:
            InputError: an unknown operation, a group larger than the number of ranks, or of one.
        """
        for name in self.operations:
            if name not in OPERATIONS:
                raise UnknownNameError("collective", name, OPERATIONS)
        for size in self.group_sizes:
            if not 2 <= size <= world:
                raise InputError(f"a group needs 2 to {world} ranks here, found {size}", "--group-sizes")


def launch(
    request: MeasurementRequest, processes: int, device: str, show_progress: bool = True
) -> ProfileResult:
    """Start processes on this machine and measure between them.

    Args:
        request: the measurements.
        processes: number of processes; at most one per GPU.
        device: "cpu" (gloo) or "cuda" (NCCL, one GPU per process).
        show_progress: draw a progress bar on stderr.

    Raises:
        InputError: fewer than two processes, more than the GPUs here, an unknown operation or group.
        MeshwrightError: a process failed; finished points are kept.
    """
    host = machine.find(device)
    if processes >= 2:
        request.check(processes)
        PointStore(request.out, host)  # says what is wrong with the folder before a process is started
    return run_ranks(_measure_here, processes, host.kind, request, host.kind, processes, show_progress)


def _measure_here(
    request: MeasurementRequest, kind: str, processes: int, show_progress: bool
) -> ProfileResult:
    rank = require_torch().distributed.get_rank()
    device = "cpu" if kind == "cpu" else f"cuda:{rank}"
    return measure(request, device, processes, show_progress and rank == 0)


def measure(
    request: MeasurementRequest, device: str, ranks_per_node: int, show_progress: bool
) -> ProfileResult:
    """Measure inside a process group that exists; every rank calls it, rank 0 writes.

    Args:
        request: what to measure.
        device: this rank's device.
        ranks_per_node: how many ranks one machine holds.
        show_progress: draw a progress bar on stderr.
    """
    start = time.perf_counter()
    torch = require_torch()
    distributed = torch.distributed
    rank, world = distributed.get_rank(), distributed.get_world_size()
    request.check(world)
    host = machine.find(device)
    if host.kind == "cuda":
        torch.cuda.set_device(host.index)
    plan = _plan(request, host, world, ranks_per_node)
    store = PointStore(request.out, host, _note()) if rank == 0 else None
    todo = _agreed([point for point in plan if store is not None and point not in store])
    provenance = None
    if rank == 0:
        provenance = Provenance(request.out / "provenance.yaml", host, request.mode, (_dtype(host.kind),))
    sizes = dict.fromkeys(int(point.values["n_gpus"]) for point in plan)
    groups = {size: distributed.new_group(list(range(size))) for size in sizes}
    skipped: list[SkippedPoint] = []
    noisy = 0
    with progress(len(todo), show_progress) as advance:
        for point in todo:
            advance(str(point))
            timing, why = _time(point, host, groups[int(point.values["n_gpus"])])
            if timing is None:
                skipped.append(SkippedPoint(str(point), why))
            elif store is not None:
                store.add(point, timing.seconds, timing.spread)
                noisy += timing.spread > NOISY
    if provenance is not None:
        provenance.finish(len(todo) - len(skipped), skipped, (), interrupted=False)
    return ProfileResult(
        out=request.out,
        device=host.name,
        planned=len(plan),
        measured=len(todo) - len(skipped),
        resumed=len(plan) - len(todo),
        noisy=noisy,
        skipped=tuple(skipped),
        interrupted=False,
        seconds=time.perf_counter() - start,
        files=tuple(points.files(request.out).values()),
    )


def _note() -> str:
    """Features disabled by the environment, for the source column."""
    return ":nvls-off" if os.environ.get("NCCL_NVLS_ENABLE") == "0" else ""


def _dtype(kind: str) -> str:
    return "bf16" if kind == "cuda" else "fp32"


def _plan(request: MeasurementRequest, host: Machine, world: int, ranks_per_node: int) -> list[BenchPoint]:
    plan = []
    for name in request.operations:
        groups = request.groups(world) if name != "send_recv" else [2]
        for ranks in groups:
            for size in request.sizes(host.kind):
                values: Values = {
                    "system": request.system or host.name,
                    "op": name,
                    "dtype": _dtype(host.kind),
                    "n_gpus": ranks,
                    "n_nodes": -(-ranks // ranks_per_node),
                    "bytes": size,
                }
                plan.append(BenchPoint(name, "collectives", values))
    return plan


def _agreed(todo: list[BenchPoint]) -> list[BenchPoint]:
    """Rank 0's list on every rank."""
    shared = [todo]
    require_torch().distributed.broadcast_object_list(shared, src=0)
    return shared[0]


def _time(
    point: BenchPoint, host: Machine, group: torch.distributed.ProcessGroup
) -> tuple[Timing | None, str]:
    """Measure one point on the ranks of its group; the slowest rank's time counts.

    All ranks agree on the outcome, so that none waits for a rank that failed.
    """
    torch = require_torch()
    distributed = torch.distributed
    ranks, taking_part = int(point.values["n_gpus"]), distributed.get_rank() < int(point.values["n_gpus"])
    timing, why = None, ""
    if taking_part:
        call = None
        try:
            call = _call(point, host, group, ranks)
        except RuntimeError as error:
            why = reason(error)
        # If a rank has no memory for its buffers, no rank may wait for it.
        if _slowest(float(call is None), host, group):
            call, why = None, why or "a rank is out of memory"
        try:
            timing = _rounds(call, host, group) if call else None
        except (RuntimeError, NotImplementedError, ValueError) as error:
            why = reason(error)
    outcome: list[tuple[Timing | None, str]] = [(timing, why)]
    distributed.broadcast_object_list(outcome, src=0)
    return outcome[0]


def _rounds(call: Call, host: Machine, group: torch.distributed.ProcessGroup) -> Timing:
    for _ in range(WARM_UP_CALLS):
        call()
    once = _slowest(_elapsed(call, 1, host, group), host, group)
    calls = max(1, min(MAX_CALLS, round(TARGET_SECONDS / once)))
    return summary(
        [_slowest(_elapsed(call, calls, host, group), host, group) / calls for _ in range(REPEATS)]
    )


def _elapsed(call: Call, calls: int, host: Machine, group: torch.distributed.ProcessGroup) -> float:
    torch = require_torch()
    synchronize = torch.cuda.synchronize if host.kind == "cuda" else (lambda: None)
    torch.distributed.barrier(group)
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return time.perf_counter() - start


def _slowest(seconds: float, host: Machine, group: torch.distributed.ProcessGroup) -> float:
    torch = require_torch()
    value = torch.tensor([seconds], dtype=torch.float64, device=host.torch_device)
    torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX, group)
    return float(value.item())


def _call(point: BenchPoint, host: Machine, group: torch.distributed.ProcessGroup, ranks: int) -> Call:
    """The collective on buffers of the point's size."""
    torch = require_torch()
    distributed = torch.distributed
    dtype = str(point.values["dtype"])
    elements = int(point.values["bytes"]) // BYTES_PER_ELEMENT[dtype]
    share = max(1, elements // ranks)
    torch_dtype = getattr(torch, TORCH_NAMES[dtype])
    buffer = torch.zeros(share * ranks, dtype=torch_dtype, device=host.torch_device)
    part = torch.zeros(share, dtype=torch_dtype, device=host.torch_device)
    received = torch.zeros_like(buffer)
    # torch 2.13 renames these two and warns of the old names
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    first = distributed.get_rank() == 0

    def send_recv() -> None:
        if first:
            distributed.send(buffer, 1, group)
        else:
            distributed.recv(received, 0, group)

    calls: dict[str, Call] = {
        "all_reduce": lambda: distributed.all_reduce(buffer, group=group),
        "all_gather": lambda: gather(received, part, group=group),
        "reduce_scatter": lambda: scatter(part, buffer, group=group),
        "alltoall": lambda: distributed.all_to_all_single(received, buffer, group=group),
        "send_recv": send_recv,
    }
    return calls[str(point.values["op"])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure under torchrun, which sets the rank and the meeting point in the environment."""
    parser = argparse.ArgumentParser(
        prog="profiles.measure.collectives", description="Collectives between devices."
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the point files")
    parser.add_argument("--mode", choices=("quick", "full"), default="quick")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="comma-separated")
    parser.add_argument("--group-sizes", default="", help="comma-separated; default: see --mode")
    parser.add_argument("--system", default="", help="what the system column says")
    options = parser.parse_args(arguments)
    try:
        _under_torchrun(options)
    except MeshwrightError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(error.exit_code) from None


def _under_torchrun(options: argparse.Namespace) -> None:
    if "RANK" not in os.environ:
        raise InputError("no ranks here; start it with torchrun, or with 'meshwright profile' on one machine")
    torch = require_torch()
    kind = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    sizes = tuple(int(size) for size in options.group_sizes.split(",") if size)
    operations = tuple(options.operations.split(","))
    request = MeasurementRequest(options.out, options.mode, operations, sizes, options.system)
    torch.distributed.init_process_group(BACKENDS[kind])
    local = int(os.environ["LOCAL_RANK"])
    try:
        device = "cpu" if kind == "cpu" else f"cuda:{local}"
        first = torch.distributed.get_rank() == 0
        result = measure(request, device, int(os.environ["LOCAL_WORLD_SIZE"]), first)
        if first:
            for point in result.skipped:
                sys.stderr.write(f"skipped {point.point}: {point.reason}\n")
    finally:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
