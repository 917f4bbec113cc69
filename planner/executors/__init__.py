"""Where independent work runs: on this machine's cores, or on a Ray cluster; found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from core.errors import named

EXECUTORS = {"local": "local", "ray": "ray_cluster"}
"""Module of each executor."""

InParallel = Callable[..., Iterator[tuple[int, Any]]]


def executor(name: str, address: str = "") -> InParallel:
    """The ``in_parallel`` of an executor.

    Args:
        name: local or ray.
        address: of a Ray cluster.

    Raises:
        UnknownNameError: no such executor.
    """
    in_parallel = _module(name).in_parallel
    return partial(in_parallel, address=address) if address else in_parallel


def check(name: str, address: str = "") -> None:
    """Refuse an executor that cannot run.

    Raises:
        UnknownNameError: no such executor.
        InputError: it is not installed, or its cluster does not answer.
    """
    if name != "local":  # this machine always answers
        _module(name).check(address)


def _module(name: str) -> Any:
    return import_module(f"planner.executors.{named('executor', name, EXECUTORS, '--executor')}")
