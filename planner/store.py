"""Finished results in a SQLite file: each is written at once, and a second run finds it.

A result's key is a digest of its question and of the program that answered it (version and every file that a
prediction depends on), so a store never answers for another version. Several processes may share a store.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

from hwmodels.errors import InputError, MeshwrightError, shown_path

FORMAT = 1
"""Of the file; it grows when older ones can no longer be read."""
APPLICATION = 0x4D575254
"""SQLite's application id: MWRT."""
WAIT_S = 60.0
"""Longest wait for another process that writes."""
PACKAGES = ("hwmodels", "simulator", "planner")
SUFFIXES = (".py", ".yaml", ".csv", ".json")


@cache
def program() -> str:
    """Digest of the program: of all files of the packages that predict."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(question: Mapping[str, Any], version: str) -> str:
    """The key of a question's result."""
    text = json.dumps([version, program(), question], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """A file of results. Use it as a context; results are on disk as soon as ``put`` returns.

    Args:
        path: of the file; made where there is none.

    Raises:
        InputError: it is another kind of file, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
            self._open()

    def _open(self) -> None:
        kind = self._base.execute("PRAGMA application_id").fetchone()[0]
        tables = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and kind != APPLICATION:
            raise InputError("is no store of Meshwright", shown_path(self.path))
        found = self._base.execute("PRAGMA user_version").fetchone()[0]
        if tables and found != FORMAT:
            problem = (
                f"was written by another version of Meshwright (format {found}, this one reads {FORMAT})"
            )
            raise InputError(problem, shown_path(self.path))
        # Readers and one writer at a time; a killed process leaves a log that the next one reads.
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        self._base.execute(f"PRAGMA application_id={APPLICATION}")
        self._base.execute(f"PRAGMA user_version={FORMAT}")
        self._base.execute(
            "CREATE TABLE IF NOT EXISTS results "
            "(key TEXT PRIMARY KEY, version TEXT NOT NULL, question TEXT NOT NULL, result TEXT NOT NULL)"
        )

    def get(self, key: str) -> dict[str, Any] | None:
        """A finished result; none where it is not there."""
        with self._told():
            row = self._base.execute("SELECT result FROM results WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, version: str, question: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Write a result; one that another process has written meanwhile stays.

        Raises:
            MeshwrightError: the disk is full, or the file is gone.
        """
        row = (key, version, json.dumps(question), json.dumps(result, allow_nan=False))
        with self._told():
            self._base.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", row)

    def others(self, version: str) -> int:
        """Results of other versions, which no question of this one finds."""
        with self._told():
            return self._base.execute(
                "SELECT count(*) FROM results WHERE version != ?", (version,)
            ).fetchone()[0]

    def __len__(self) -> int:
        with self._told():
            return self._base.execute("SELECT count(*) FROM results").fetchone()[0]

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of SQLite and of the file system in the house's words."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            words = str(error)
            if "not a database" in words or "malformed" in words:
                raise InputError("is no store of Meshwright", shown_path(self.path)) from None
            kept = "; results written before are kept" if "full" in words else ""
            raise MeshwrightError(f"{shown_path(self.path)}: cannot be used ({words}){kept}") from None
        except OSError as error:
            raise InputError(f"cannot be opened ({error.strerror})", shown_path(self.path)) from None
