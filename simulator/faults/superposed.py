"""All faults of a run: processes added up, as a scenario states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError, UnknownNameError, shown
from core.loading import Strict, build, exists, looks_like_path
from simulator.faults.components import Components
from simulator.faults.preset import FaultPreset, presets
from simulator.faults.process import Exposed, FaultKind, FaultList, FaultProcess
from simulator.faults.registry import PROCESSES


@dataclass(frozen=True)
class Faults:
    """Independent fault processes of one job.

    Attributes:
        name: of the preset, or the processes' kinds.
        processes: what is added up.
        preset: the preset that they come from.
    """

    name: str
    processes: tuple[FaultProcess, ...]
    preset: FaultPreset | None = None

    @property
    def memoryless(self) -> bool:
        """Whether closed forms apply: exponential times between faults, none of them silent."""
        return all(process.memoryless for process in self.processes)

    def rate(self, job: Exposed) -> float:
        """Faults of a job per second."""
        return sum(process.rate(job) for process in self.processes)

    def loss_rate(self, job: Exposed) -> tuple[float, float]:
        """Nodes lost per second, and the mean seconds until a lost node is back."""
        losses = [process.loss_rate(job) for process in self.processes]
        rate = sum(lost for lost, _ in losses)
        return rate, sum(lost * repair for lost, repair in losses) / rate if rate else 0.0

    def kinds(self, job: Exposed) -> list[FaultKind]:
        """Kinds of faults with their rates."""
        return [kind for process in self.processes for kind in process.kinds(job)]

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``, sorted by time."""
        return FaultList.merged([process.draw(rng, job, horizon_s) for process in self.processes])


class _PresetUse(Strict):
    """A preset, changed."""

    preset: str
    size_term: bool = True
    """Whether the rate of a node grows with the job, where the preset measured it."""


def read_faults(reference: object, where: str, folder: Path) -> Faults:
    """Resolve a scenario's ``run.faults``.

    Args:
        reference: a preset's name, a path to a file of that form, a mapping with ``preset`` or ``kind``, or a
            list of them; None and "none": no faults.
        where: name of the key in errors.
        folder: base of relative paths.

    Raises:
        InputError: an unknown name, a wrong key or value, an unreadable file.
    """
    if reference in (None, "none"):
        return Faults("none", ())
    if isinstance(reference, str):
        return _preset(_PresetUse(preset=reference), where, folder)
    if isinstance(reference, list) and reference:
        parts = [read_faults(part, f"{where}.{number}", folder) for number, part in enumerate(reference)]
        processes = tuple(process for part in parts for process in part.processes)
        return Faults(" + ".join(part.name for part in parts), processes)
    if isinstance(reference, Mapping) and "preset" in reference:
        return _preset(build(_PresetUse, reference, where), where, folder)
    if isinstance(reference, Mapping) and "kind" in reference:
        kind = reference["kind"]
        if not isinstance(kind, str) or kind not in PROCESSES:
            raise UnknownNameError("fault process", str(kind), PROCESSES, f"{where}.kind")
        model = PROCESSES[kind]
        return Faults(kind, (build(model, reference, where, folder),))
    raise InputError(
        "faults are a preset's name, a path, a mapping with kind or preset, or a list of them, "
        f"found {shown(reference)}",
        where,
    )


def _preset(use: _PresetUse, where: str, folder: Path) -> Faults:
    name: str | Path = use.preset
    if looks_like_path(use.preset) and presets.resolve(use.preset) is None:
        name = folder / use.preset
        if not exists(name):
            raise InputError(f"no such file: {str(name)!r}", where)
    preset = presets.get(name, where)
    processes: list[FaultProcess] = []
    for process in preset.processes:
        plain: Any = process
        if isinstance(process, Components) and not use.size_term:
            plain = process.model_copy(update={"size": None})
        processes.append(plain)
    return replace(Faults(preset.name, tuple(processes)), preset=preset)
