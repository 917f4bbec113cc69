"""The point files of one run: existing points, and new points as they finish."""

from __future__ import annotations

from pathlib import Path

from core.errors import InputError
from profiles import points
from profiles.measure.bench import BenchPoint
from profiles.measure.machine import Machine


class PointStore:
    """The point files of one folder, for one device.

    Raises:
        InputError: the folder holds points of another device, or a file that cannot be read.
    """

    def __init__(self, folder: Path, host: Machine, note: str = "") -> None:
        self.folder, self.machine = folder, host
        self.source = f"meshwright:torch-{host.versions['torch']}{note}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made ({error.strerror})", str(folder)) from None
        self.keys: set[tuple[str, tuple[str, ...]]] = set()
        for name in points.TABLES:
            path = self._path(name)
            if path.is_file():
                _drop_half_line(path)
                self._learn(name, path)

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.csv"

    def _learn(self, name: str, path: Path) -> None:
        table = points.TABLES[name]
        if path.stat().st_size == 0:
            return
        for row in points.read(path, table).rows():
            owner = row.get("gpu", self.machine.name)
            if owner != self.machine.name:
                other = f"holds points of {owner}, not of {self.machine.name}; give another folder"
                raise InputError(other, str(path))
            self.keys.add((name, table.key(row)))

    def _key(self, point: BenchPoint) -> tuple[str, tuple[str, ...]]:
        name = point.table
        return name, points.TABLES[name].key({"gpu": self.machine.name, **point.values})

    def __contains__(self, point: BenchPoint) -> bool:
        return self._key(point) in self.keys

    def add(self, point: BenchPoint, seconds: float, spread: float) -> None:
        """Write a finished point."""
        name = point.table
        measured = {"time_us": seconds * 1e6, "spread": spread, "source": self.source}
        row = {"gpu": self.machine.name, **point.values, **measured}
        points.append(self._path(name), points.TABLES[name], row)
        self.keys.add(self._key(point))


def _drop_half_line(path: Path) -> None:
    """Remove a partial last line left by a crash."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def reason(error: BaseException) -> str:
    """Reason why a point cannot be measured, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if memory or "can't allocate memory" in first:
        return "out of memory"
    return first if len(first) <= 160 else first[:157] + "..."
