"""Start the ranks of a process group on this machine, wait for them, and return rank 0's result."""

from __future__ import annotations

import pickle
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from core.errors import InputError, MeshwrightError
from core.processes import end_with_parent, interruptions_held
from profiles.measure.machine import require_torch

Answer = TypeVar("Answer")

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def run_ranks(function: Callable[..., Answer], processes: int, kind: str, *arguments: object) -> Answer:
    """Call a function on every rank of a new process group.

    Args:
        function: a function of a module (it is pickled), called with ``arguments``.
        processes: number of ranks, at least two.
        kind: "cpu" (gloo) or "cuda" (NCCL; rank i uses device i).
        arguments: passed on.

    Returns:
        What rank 0 returns.

    Raises:
        InputError: fewer than two ranks, or more than there are GPUs.
        MeshwrightError: a rank failed.
    """
    torch = require_torch()
    devices = torch.cuda.device_count() if kind == "cuda" else processes
    if not 2 <= processes <= devices:
        limit = f"2 to {devices}" if devices >= 2 else "at least 2"
        raise InputError(f"a process group here needs {limit} processes, found {processes}")
    multiprocessing = torch.multiprocessing
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        try:
            rank_arguments = (function, arguments, kind, processes, folder)
            with interruptions_held():  # a rank whose start is cut short prints a traceback
                ranks = multiprocessing.spawn(_rank, rank_arguments, processes, join=False, daemon=True)
            _wait(ranks)
        except (multiprocessing.ProcessRaisedException, multiprocessing.ProcessExitedException) as error:
            # Gloo's threads now and then abort a process that is leaving; by then every rank had finished.
            if not answer.exists():
                last = str(error).strip().splitlines()[-1]
                raise MeshwrightError(f"a rank failed ({last}); what it finished is kept") from None
        return pickle.loads(answer.read_bytes())


def _wait(ranks: Any) -> None:
    """Wait until all ranks have ended; Ctrl-C ends them at once."""
    try:
        while not ranks.join():
            pass
    except KeyboardInterrupt:
        for process in ranks.processes:
            process.kill()
        for process in ranks.processes:
            process.join()
        raise


def _rank(
    rank: int,
    function: Callable[..., Any],
    arguments: tuple[object, ...],
    kind: str,
    processes: int,
    folder: str,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first ends the rest
    end_with_parent()
    torch = require_torch()
    meeting = f"file://{folder}/meeting"
    if kind == "cuda":
        torch.cuda.set_device(rank)
    device = torch.device("cuda", rank) if kind == "cuda" else None
    torch.distributed.init_process_group(
        BACKENDS[kind], init_method=meeting, rank=rank, world_size=processes, device_id=device
    )
    try:
        answer = function(*arguments)
        torch.distributed.barrier()
        if rank == 0:
            written = Path(folder) / "written"
            written.write_bytes(pickle.dumps(answer))
            written.rename(Path(folder) / "answer")
    finally:
        torch.distributed.destroy_process_group()
