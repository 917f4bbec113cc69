"""Finished results in a SQLite file: each is written at once, and a second run finds it.

A result's key is a digest of its question and of the program that answered it (every file of the packages),
so a store never answers for another version. Processes of one machine may share a store: a process claims a
question before it answers it, and claims of ended processes are void.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from core.errors import InputError, MeshwrightError, shown_path
from core.loading import SUFFIXES as DEFINITIONS
from core.loading import exists, read_mapping

FORMAT = 2
"""Format version of the file; increased when older files become unreadable."""
APPLICATION = 0x4D575254
"""SQLite's application id: MWRT."""
WAIT_S = 60.0
"""Maximum wait for another writing process, s."""
MOST_PROCESSES = 2**31
"""Process ids are below it."""
GROUP = 500
"""Maximum keys per query."""
PACKAGES = ("core", "hwmodels", "simulator", "planner", "meshwright")
SUFFIXES = (".py", ".yaml", ".csv", ".json")


@cache
def program() -> str:
    """Digest of the program: of all its code and data files."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                digest.update(path.relative_to(root).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


class Keyed(NamedTuple):
    """A question as JSON text, and the key of its result."""

    key: str
    text: str

    @classmethod
    def of(cls, question: Mapping[str, Any]) -> Keyed:
        """Key a question, of this version of the program."""
        text = _text(question)
        return cls(hashlib.sha256(f"{program()} {text}".encode()).hexdigest(), text)


def digest_of(value: Any) -> str:
    """Digest of plain data, models and dataclasses."""
    return hashlib.sha256(_text(value).encode()).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, fallback=lambda array: array.tolist())


def file_digests(data: Any, folder: Path, above: tuple[Path, ...] = ()) -> dict[str, str]:
    """Digests of the files that a scenario names, and of those that its definitions name, by path.

    Args:
        data: the scenario.
        folder: base of its relative paths.
        above: definitions that name this one.
    """
    if isinstance(data, Mapping | list | tuple):
        values = data.values() if isinstance(data, Mapping) else data
        return {
            name: digest for value in values for name, digest in file_digests(value, folder, above).items()
        }
    if not isinstance(data, str) or not ("." in data or "/" in data) or not exists(folder / data):
        return {}
    path = folder / data
    if not path.is_file() or path in above:
        return {}
    state = path.stat()
    digests = {data: _digest(path, state.st_mtime_ns, state.st_size)}
    if path.suffix in DEFINITIONS:
        definition = _definition(path, state.st_mtime_ns, state.st_size)
        inner = file_digests(definition, path.parent, (*above, path))
        digests |= {f"{data}: {name}": digest for name, digest in inner.items()}
    return digests


@lru_cache(maxsize=1024)
def _digest(path: Path, changed_ns: int, size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@lru_cache(maxsize=1024)
def _definition(path: Path, changed_ns: int, size: int) -> Mapping[str, Any]:
    try:
        return read_mapping(path)
    except InputError:  # the prediction itself says what is wrong
        return {}


@cache
def _owner() -> str:
    """This process, in claims: host, process id and start time."""
    return f"{socket.gethostname()} {os.getpid()} {_started(os.getpid())}"


def _started(process: int) -> str:
    """Start time of a process, in clock ticks; empty where the system does not tell."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_alive(owner: str) -> bool:
    """Whether the process of a claim runs on this machine; SQLite files are not shared between machines."""
    host, process, started = ["", "", "", *owner.rsplit(" ", 2)][-3:]
    if host != socket.gethostname() or not process.isdigit() or not 0 < int(process[:12]) < MOST_PROCESSES:
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started == _started(int(process))


def _sealed(result: Mapping[str, Any]) -> str:
    """A result as JSON behind the digest of the JSON."""
    text = json.dumps(result, allow_nan=False)
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}"


def _opened(row: object) -> dict[str, Any] | None:
    """A stored result; None where the row is damaged, so that its question is answered again."""
    digest, _, text = str(row).partition(" ")
    if digest != hashlib.sha256(text.encode("utf-8", "replace")).hexdigest():
        return None
    return json.loads(text)


class ResultStore:
    """A file of results. Use it as a context; results are on disk as soon as ``put`` returns.

    Args:
        path: path of the file; created if missing.

    Raises:
        InputError: it is another kind of file, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._told():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
            self._base.text_factory = lambda data: data.decode("utf-8", "replace")
            self._open()

    def _open(self) -> None:
        # Tables first: another process that opens a new file writes its kind before its tables.
        tables = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        kind = self._base.execute("PRAGMA application_id").fetchone()[0]
        if tables and kind != APPLICATION:
            raise InputError("is not a store of results (SQLite file of `--store`)", shown_path(self.path))
        version = self._base.execute("PRAGMA user_version").fetchone()[0]
        if tables and version != FORMAT:
            problem = (
                f"was written by another version of Meshwright (format {version}, this one reads {FORMAT})"
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
        self._base.execute("CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL)")

    def get(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Stored results by key; other keys, and rows that are damaged, are left out."""
        with self._told():
            rows = {key: _opened(row) for key, row in self._rows("key, result FROM results", keys)}
        return {key: result for key, result in rows.items() if result is not None}

    def claim(self, keys: Sequence[str]) -> set[str]:
        """Claim questions for this process, until it closes the store or ends.

        Returns:
            Keys claimed; not those of stored results, nor those that another running process has claimed.

        Raises:
            MeshwrightError: the disk is full, or the file is gone.
        """
        with self._told():
            self._base.execute("BEGIN IMMEDIATE")
            rows = self._rows("key, result FROM results", keys)
            others = {key for key, row in rows if _opened(row) is not None}
            damaged = [(key,) for key, _ in rows if key not in others]
            self._base.executemany("DELETE FROM results WHERE key = ?", damaged)
            for key, owner in self._rows("key, owner FROM claims", keys):
                if owner != _owner() and _is_alive(owner):
                    others.add(key)
            mine = [key for key in keys if key not in others]
            rows = [(key, _owner()) for key in mine]
            self._base.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?)", rows)
            self._base.execute("COMMIT")
        return set(mine)

    def put(self, question: Keyed, result: Mapping[str, Any]) -> None:
        """Write a result; one that another process has written meanwhile stays.

        Raises:
            MeshwrightError: the disk is full, or the file is gone.
        """
        row = (question.key, program(), question.text, _sealed(result))
        with self._told():
            self._base.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", row)

    def others(self) -> int:
        """Results of other versions of the program, which no question of this one finds."""
        with self._told():
            count = "SELECT count(*) FROM results WHERE version != ?"
            return self._base.execute(count, (program(),)).fetchone()[0]

    def _rows(self, columns: str, keys: Sequence[str]) -> list[tuple[str, ...]]:
        """Columns of a table, of the rows of some keys; at most ``GROUP`` of them."""
        places = ",".join("?" * len(keys))
        return self._base.execute(f"SELECT {columns} WHERE key IN ({places})", keys).fetchall()

    def __len__(self) -> int:
        with self._told():
            return self._base.execute("SELECT count(*) FROM results").fetchone()[0]

    def __enter__(self) -> ResultStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(sqlite3.Error):  # a full disk, after the error that it caused
            self._base.execute("DELETE FROM claims WHERE owner = ?", (_owner(),))
        self._base.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Convert errors of SQLite and of the file system to Meshwright's errors."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            words = str(error)
            if "not a database" in words or "malformed" in words:
                raise InputError(
                    "is not a store of results (SQLite file of `--store`)", shown_path(self.path)
                ) from None
            if "unable to open" in words:
                raise InputError("cannot be opened as a store", shown_path(self.path)) from None
            note = "; results written before are kept" if "full" in words else ""
            raise MeshwrightError(f"{shown_path(self.path)}: cannot be used ({words}){note}") from None
        except OSError as error:
            raise InputError(f"cannot be opened ({error.strerror})", shown_path(self.path)) from None
        except (UnicodeDecodeError, OverflowError) as error:
            problem = f"is damaged ({str(error)[:80]}); delete it, or name another --store"
            raise InputError(problem, shown_path(self.path)) from None
