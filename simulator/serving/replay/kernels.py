"""Kernels: functions that run as they are, or compiled by numba.

numba caches compiled code by the file of a function alone, so a change of a kernel that it calls would go
unseen. The cache folder therefore carries a digest of the files of all kernels and of the versions that
made it.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_is_kernel"
OPTIONS = {"cache": True, "boundscheck": True, "_nrt": False}
"""How numba compiles kernels. They make no arrays, and their caller holds those that they read: without
counts of references (``_nrt``) a run takes two thirds of the time."""


def kernel(function: F) -> F:
    """Mark a function as a kernel; in plain runs it is itself."""
    setattr(function, _MARK, True)
    return function


@cache
def has_compiler() -> bool:
    """Whether numba is installed, without importing it."""
    try:
        return bool(version("numba"))
    except PackageNotFoundError:
        return False


def digest(modules: Sequence[ModuleType]) -> str:
    """Of the files of modules, of the versions of Python, numba and numpy, and of what numba is told."""
    versions = f"{sys.version_info[:2]} {version('numba')} {version('numpy')} {OPTIONS}"
    total = hashlib.sha256(versions.encode())
    for module in modules:
        total.update(Path(module.__file__ or "").read_bytes())
    return total.hexdigest()[:16]


def cache_folder(modules: Sequence[ModuleType]) -> Path:
    """Where compiled code of modules lies."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "meshwright" / f"kernels-{digest(modules)}"


def tell(words: str) -> None:
    """Say something beside the answer."""
    if sys.stderr is not None:
        sys.stderr.write(f"meshwright: {words}\n")
        sys.stderr.flush()


class Compiler:
    """Kernels of modules, compiled when they are asked for.

    Args:
        modules: whose kernels call each other.
        written_out: kernels that stand for others: what lists have built in, told for arrays.
        columns: of each kernel that Python calls, the types of its arguments as numba writes them.
    """

    def __init__(
        self,
        modules: Sequence[ModuleType],
        written_out: Mapping[str, str],
        columns: Mapping[str, Sequence[str]],
    ) -> None:
        self._modules, self._written_out = modules, written_out
        self._columns = columns
        self._functions: dict[str, Any] | None = None
        self._ready: set[str] = set()
        self._broken = False

    def usable(self) -> bool:
        """Whether numba is installed, and has not failed in this process."""
        return has_compiler() and not self._broken

    def ready(self, name: str) -> bool:
        """Whether an entry is loaded."""
        return name in self._ready

    def cached(self, name: str) -> bool:
        """Whether an entry was compiled on this machine by an earlier run."""
        return (cache_folder(self._modules) / f"{name}.done").exists()

    def entry(self, name: str) -> Callable[..., Any] | None:
        """A compiled kernel; None where it cannot be compiled, which is told once."""
        if not self.usable():
            return None
        try:
            if name not in self._ready:
                self._load(name)
        except Exception as error:
            self._broken = True
            first = str(error).strip().partition("\n")[0]
            tell(f"kernels cannot be compiled ({first}); runs stay plain")
            return None
        return (self._functions or {})[name]

    def _load(self, name: str) -> None:
        """Compile an entry, or read it from the cache."""
        if self._functions is None:
            self._functions = self._decorated(self._folder())
        if not self.cached(name):
            tell("compiling serving kernels, once for this version (about 20 s)")
        function = self._functions[name]
        function.compile(f"({', '.join(self._columns[name])})")
        self._ready.add(name)
        folder = cache_folder(self._modules)
        if folder.is_dir():
            (folder / f"{name}.done").touch()

    def _folder(self) -> str:
        """Where numba keeps compiled code; a folder of this run where the user's cannot be written."""
        folder = cache_folder(self._modules)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return str(folder)
        except OSError:
            tell(f"{folder} cannot be written; kernels are compiled for this run only")
            return tempfile.mkdtemp(prefix="meshwright-kernels-")

    def _decorated(self, folder: str) -> dict[str, Any]:
        """All kernels as numba's dispatchers, which call each other."""
        numba: Any = import_module("numba")
        spaces: list[dict[str, Any]] = []
        functions: dict[str, Any] = {}
        settings = numba.config
        before, settings.CACHE_DIR = settings.CACHE_DIR, folder
        try:
            for module in self._modules:
                space = {**vars(module)}
                spaces.append(space)
                for name, function in vars(module).items():
                    if hasattr(function, _MARK) and function.__module__ == module.__name__:
                        copied = FunctionType(function.__code__, space, name)
                        functions[name] = numba.njit(**OPTIONS)(copied)
        finally:
            settings.CACHE_DIR = before
        functions |= {plain: functions[other] for plain, other in self._written_out.items()}
        for space in spaces:
            space.update({name: function for name, function in functions.items() if name in space})
        return functions
