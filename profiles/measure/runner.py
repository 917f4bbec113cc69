"""Runs a plan point by point; every finished point is written to disk at once."""

from __future__ import annotations

import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from core.errors import InputError, MeshwrightError, UnknownNameError
from profiles import points
from profiles.measure import machine
from profiles.measure.bench import Bench, BenchPoint, MeasuredOperation, Scope
from profiles.measure.machine import Machine
from profiles.measure.operations import OPERATIONS
from profiles.measure.progress import progress
from profiles.measure.provenance import Provenance
from profiles.measure.result import Mode, ProfileResult, SkippedPoint
from profiles.measure.store import PointStore, reason
from profiles.measure.timing import NOISY

CPU_LIMITS = {"quick": (4e9, 160e6), "full": (16e9, 320e6)}
"""Largest operation on a CPU, (FLOP, bytes moved): a point then takes tenths of a second."""

CLOCKS_EVERY = 20  # points between two looks at the clocks


def run(
    device: str,
    mode: Mode,
    dtypes: tuple[str, ...],
    out: Path,
    name: str,
    operations: tuple[str, ...],
    storage: Path | None,
    show_progress: bool,
    notice: Callable[[str], None] | None,
) -> ProfileResult:
    """See ``profiles.measure.profile``."""
    start = time.perf_counter()
    notice = notice or (lambda line: None)
    if mode not in CPU_LIMITS:
        raise UnknownNameError("mode", mode, CPU_LIMITS)
    selected = _chosen(operations)
    if storage is not None and not storage.is_dir():
        raise InputError("a folder on the drive to measure is needed", str(storage))
    host = machine.find(device, name)
    scope = _scope(host, mode, host.checked_dtypes(dtypes), storage)
    plan = planned(scope, selected)
    store = PointStore(out, host)
    todo = [point for point in plan if point not in store]
    if len(todo) < len(plan):
        notice(f"{len(plan) - len(todo)} of {len(plan)} points are in {out} already")
    provenance = Provenance(out / "provenance.yaml", host, mode, scope.dtypes)
    session = Session(OPERATIONS, Bench(host, storage), store, provenance, notice)
    interrupted = session.run(todo, show_progress)
    if session.noisy:
        share = f"{session.noisy} of {session.measured} points"
        notice(f"{share} scatter by more than {NOISY:.0%}: was the machine busy with something else?")
    provenance.finish(session.measured, session.skipped, session.bench.without_graph, interrupted)
    return ProfileResult(
        out=out,
        device=host.name,
        planned=len(plan),
        measured=session.measured,
        resumed=len(plan) - len(todo),
        noisy=session.noisy,
        skipped=tuple(session.skipped),
        interrupted=interrupted,
        seconds=time.perf_counter() - start,
        files=tuple(points.files(out).values()),
    )


def _chosen(names: tuple[str, ...]) -> list[MeasuredOperation]:
    for name in names:
        if name not in OPERATIONS:
            raise UnknownNameError("operation", name, OPERATIONS)
    return [OPERATIONS[name] for name in names or OPERATIONS]


def _scope(host: Machine, mode: Mode, dtypes: tuple[str, ...], storage: Path | None) -> Scope:
    if host.kind == "cuda":
        return Scope(mode, dtypes, host, storage)
    flops, moved_bytes = CPU_LIMITS[mode]
    return Scope(mode, dtypes, host, storage, flops, moved_bytes)


def planned(scope: Scope, operations: Iterable[MeasuredOperation]) -> list[BenchPoint]:
    """The plan, large and small points mixed so that heat spreads, the sustained ones at the end.

    The order depends on the points only, so that an interrupted run can resume. A point of two operations
    (scaled-down shapes may coincide) is in the plan once.
    """
    plan: dict[tuple[str, frozenset[tuple[str, str | int]]], BenchPoint] = {}
    for operation in operations:
        for values in operation.plan(scope):
            key = (operation.table, frozenset(values.items()))
            plan.setdefault(key, BenchPoint(operation.name, operation.table, values))
    return sorted(plan.values(), key=lambda p: (OPERATIONS[p.operation].last, zlib.crc32(str(p).encode())))


class Session:
    """One run over the remaining points.

    Args:
        operations: the operations that points name.
        bench: times them.
        store: keeps finished points.
        provenance: records the clocks.
        notice: called with each point that cannot be measured.
    """

    def __init__(
        self,
        operations: Mapping[str, MeasuredOperation],
        bench: Bench,
        store: PointStore,
        provenance: Provenance,
        notice: Callable[[str], None],
    ) -> None:
        self.operations, self.bench, self.store = operations, bench, store
        self.provenance, self.notice = provenance, notice
        self.measured = self.noisy = 0
        self.skipped: list[SkippedPoint] = []

    def run(self, todo: list[BenchPoint], show_progress: bool) -> bool:
        """Measure; return whether Ctrl-C ended the run early."""
        with progress(len(todo), show_progress) as advance, _CtrlC() as ctrl_c:
            try:
                for index, point in enumerate(todo):
                    if index % CLOCKS_EVERY == 0:
                        self.provenance.look_at_clocks(index)
                    advance(str(point))
                    self._measure(point)
                    if ctrl_c.pressed:
                        return True
                self.provenance.look_at_clocks(len(todo))
            except KeyboardInterrupt:
                return True
        return False

    def _measure(self, point: BenchPoint) -> None:
        try:
            timing = self.bench.time(self.operations[point.operation], point)
        except Exception as error:  # also ImportError, AttributeError and other errors of a broken library
            self._skip(point, reason(error))
        else:
            self.store.add(point, timing.seconds, timing.spread)
            self.measured += 1
            self.noisy += timing.spread > NOISY
        try:
            self.bench.release()
        except RuntimeError as error:
            note = f"{self.measured} finished points are kept in {self.store.folder}"
            raise MeshwrightError(f"the device failed at {point} ({reason(error)}); {note}") from None

    def _skip(self, point: BenchPoint, why: str) -> None:
        self.skipped.append(SkippedPoint(str(point), why))
        self.notice(f"skipped {point}: {why}")


class _CtrlC:
    """Remembers Ctrl-C: the interrupt may be raised in a callback of a library, which swallows it."""

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> _CtrlC:
        self.before = None
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)

    def _press(self, *_: object) -> None:
        self.pressed = True
        raise KeyboardInterrupt
