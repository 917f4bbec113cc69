"""Copies: inside the device's memory, between host and device, and to and from a drive.

In these rows ``tokens`` and ``dims`` are 1 and ``bytes_per_token`` is what moves: inside the device
every byte is read and written, on a link or a drive it passes once.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from profiles.measure.bench import Bench, MeasuredOperation, Scope, Values
from profiles.measure.timing import Call

MIB = 2**20
STORAGE_CHUNK = 16 * MIB


def _row(op: str, moved_bytes: int) -> Values:
    return {
        "op": op,
        "dtype": "int8",
        "direction": "forward",
        "tokens": 1,
        "dims": 1,
        "bytes_per_token": moved_bytes,
    }


def _copy_plan(scope: Scope) -> Iterator[Values]:
    cache = scope.machine.cache_bytes
    for size in dict.fromkeys((cache // 4, min(2048 * MIB, 8 * cache))):
        yield _row("copy", size)


def _copy_prepare(values: Values, bench: Bench) -> Sequence[Call]:
    source = bench.random(int(values["bytes_per_token"]) // 8, dtype="fp32")  # moved bytes count twice
    target = bench.torch.empty_like(source)
    return [lambda: target.copy_(source)]


def _host_sizes(scope: Scope) -> tuple[int, ...]:
    if scope.machine.kind == "cpu":
        return ()
    return (MIB, 16 * MIB, 512 * MIB) if scope.mode == "full" else (256 * MIB,)


def _from_host_plan(scope: Scope) -> Iterator[Values]:
    return (_row("copy_host_to_device", size) for size in _host_sizes(scope))


def _to_host_plan(scope: Scope) -> Iterator[Values]:
    return (_row("copy_device_to_host", size) for size in _host_sizes(scope))


def _host_prepare(values: Values, bench: Bench) -> Sequence[Call]:
    torch = bench.torch
    size = int(values["bytes_per_token"])
    pinned = torch.empty(size, dtype=torch.int8, pin_memory=True)
    on_device = torch.zeros(size, dtype=torch.int8, device=bench.device)
    if values["op"] == "copy_host_to_device":
        return [lambda: on_device.copy_(pinned, non_blocking=True)]
    return [lambda: pinned.copy_(on_device, non_blocking=True)]


def _storage_sizes(scope: Scope) -> tuple[int, ...]:
    if scope.storage is None:
        return ()
    return (16 * MIB, 256 * MIB, 1024 * MIB) if scope.mode == "full" else (256 * MIB,)


def _from_storage_plan(scope: Scope) -> Iterator[Values]:
    return (_row("copy_from_storage", size) for size in _storage_sizes(scope))


def _to_storage_plan(scope: Scope) -> Iterator[Values]:
    return (_row("copy_to_storage", size) for size in _storage_sizes(scope))


class _StorageFile:
    """A file on the drive under test, read and written past the page cache where the system allows."""

    def __init__(self, folder: Path, size: int) -> None:
        self.path = folder / f".meshwright-profile-{os.getpid()}"
        self.size = size
        self.buffer = mmap.mmap(-1, STORAGE_CHUNK)  # page-aligned, as direct I/O needs
        self.buffer.write(os.urandom(STORAGE_CHUNK))
        self.descriptor = self._open()
        self.write()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT
        try:
            descriptor = os.open(self.path, flags | getattr(os, "O_DIRECT", 0), 0o600)
        except OSError:  # some file systems refuse direct I/O
            descriptor = os.open(self.path, flags, 0o600)
        self.path.unlink()  # the open descriptor keeps it; nothing is left behind whatever happens
        return descriptor

    def write(self) -> None:
        for offset in range(0, self.size, STORAGE_CHUNK):
            os.pwritev(self.descriptor, [memoryview(self.buffer)[: self.size - offset]], offset)
        os.fsync(self.descriptor)

    def read(self) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.descriptor, 0, self.size, os.POSIX_FADV_DONTNEED)
        for offset in range(0, self.size, STORAGE_CHUNK):
            os.preadv(self.descriptor, [memoryview(self.buffer)[: self.size - offset]], offset)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


def _storage_prepare(values: Values, bench: Bench) -> Sequence[Call]:
    file = _StorageFile(bench.scratch or Path(), int(values["bytes_per_token"]))
    return [file.read if values["op"] == "copy_from_storage" else file.write]


COPY = MeasuredOperation("copy", "elementwise", _copy_plan, _copy_prepare)
FROM_HOST = MeasuredOperation(
    "copy_host_to_device", "elementwise", _from_host_plan, _host_prepare, method="stream"
)
TO_HOST = MeasuredOperation(
    "copy_device_to_host", "elementwise", _to_host_plan, _host_prepare, method="stream"
)
FROM_STORAGE = MeasuredOperation(
    "copy_from_storage", "elementwise", _from_storage_plan, _storage_prepare, method="host"
)
TO_STORAGE = MeasuredOperation(
    "copy_to_storage", "elementwise", _to_storage_plan, _storage_prepare, method="host"
)
