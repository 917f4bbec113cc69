"""Cache of parsed catalogue files, as JSON in the user's cache folder: YAML takes half of a short command.

A cache file belongs to one folder of the installation, or to one file where a command needs no other. It
holds a digest of its YAML files and one of itself; files with another digest are parsed again. Cached data is
never executed and passes the same checks as parsed data. Without a readable and writable folder the cache is
off, without an error.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from core.parsing import read_mapping

INSTALLED = Path(__file__).resolve().parent.parent
"""Only folders below this folder are cached."""

FORMAT = 2
"""Version of the cache format and of YAML parsing; increased when either changes."""

PAIRS = "\0pairs"
"""Key of a mapping whose keys are not all text, written as a list of pairs."""

PACKED = json.dumps(PAIRS).encode()
"""The same as bytes of a cache file."""

Files = dict[str, dict[str, Any]]
"""Parsed mappings by file name."""


def read_folder(folder: Path) -> Files:
    """The YAML files of a folder, parsed, in the order of their names.

    Raises:
        InputError: a file cannot be read or is no mapping.
    """
    with suppress(OSError):
        return _read(folder, sorted(name for name in os.listdir(folder) if name.endswith(".yaml")))
    return {path.name: read_mapping(path) for path in sorted(folder.glob("*.yaml"))}


def read_shipped(path: Path) -> dict[str, Any]:
    """A YAML file of the installation, parsed.

    Raises:
        InputError: it cannot be read or is no mapping.
    """
    with suppress(OSError):
        return _read(path, [path.name])[path.name]
    return read_mapping(path)


def _read(place: Path, names: list[str]) -> Files:
    """The files of a folder, or the file at ``place``, parsed or from the cache.

    Raises:
        OSError: a file cannot be read.
        InputError: a file is no mapping.
    """
    folder, cached = place if place.suffix != ".yaml" else place.parent, _cache_file(place)
    if cached is None:
        return {name: read_mapping(folder / name) for name in names}
    texts = {}
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            texts[name] = file.read()
    digest = _digest(texts)
    files = _load(cached, digest)
    if files is None:
        files = {name: read_mapping(folder / name) for name in names}
        _store(cached, digest, files)
    return files


def _cache_file(place: Path) -> Path | None:
    """Cache file of a folder or a file; None for those of users, and without a home."""
    place = place.resolve()
    if not place.is_relative_to(INSTALLED):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    number = blake2b(str(place).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return Path(base) / "meshwright" / f"{place.stem}-{number}.json"


def _digest(texts: dict[str, bytes]) -> str:
    digest = blake2b(str(FORMAT).encode(), digest_size=16)
    for name, text in texts.items():
        for data in (os.fsencode(name), text):
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def _load(path: Path, digest: str) -> Files | None:
    """Content of a cache file, if it is owned by the user, complete and of this digest."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            seal, _, body = file.read().partition(b"\n")
        if seal != _seal(digest, body):
            return None
        return json.loads(body, object_hook=_unpacked if PACKED in body else None)
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _seal(digest: str, body: bytes) -> bytes:
    """First line of a cache file: the digest of its sources and that of its content."""
    return f"{digest} {blake2b(body, digest_size=16).hexdigest()}".encode()


def _store(path: Path, digest: str, files: Files) -> None:
    with suppress(OSError, ValueError, TypeError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            body = json.dumps(_packed(files)).encode()
            temporary.write_bytes(_seal(digest, body) + b"\n" + body)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _packed(value: Any) -> Any:
    """The same data with string keys only."""
    if isinstance(value, list):
        return [_packed(part) for part in value]
    if not isinstance(value, dict):
        return value
    if all(isinstance(key, str) for key in value):
        return {key: _packed(part) for key, part in value.items()}
    return {PAIRS: [[key, _packed(part)] for key, part in value.items()]}


def _unpacked(mapping: dict[str, Any]) -> dict[Any, Any]:
    return dict(mapping[PAIRS]) if PAIRS in mapping else mapping
