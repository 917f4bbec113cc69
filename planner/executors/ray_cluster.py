"""Spreading independent work over a Ray cluster: the same call as ``local.in_parallel``."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from hwmodels.errors import InputError, MeshwrightError

Result = TypeVar("Result")

ANSWER_S = 5.0
"""Longest wait for a cluster's address to take a connection."""
AHEAD = 2
"""Calls handed out per worker."""
START_WAIT = ("RAY_raylet_start_wait_time_s", "120")
"""Setting of Ray where the environment has none: a busy machine starts its processes in half a minute."""
PROBE_S = 6.0
"""Longest wait for what answers to prove a Ray cluster; ray itself would try for minutes."""
PROBE = (
    "import sys\nfrom ray._raylet import GcsClient\n"
    "GcsClient(address=sys.argv[1]).internal_kv_exists(b'meshwright', namespace=None, timeout=5)\n"
)


def in_parallel(
    function: Callable[..., Result], calls: Iterable[tuple[Any, ...]], workers: int, address: str = ""
) -> Iterator[tuple[int, Result]]:
    """Call a function many times on a Ray cluster.

    Args:
        function: importable by name on every node.
        calls: the arguments of each call; taken as they are needed.
        workers: calls at work at once; on a cluster that this starts itself, also its size.
        address: of a running cluster (``host:port``, ``ray://host:port``); empty starts one on this machine.

    Yields:
        The number of a call and its result, in the order in which calls end.

    Raises:
        InputError: ray is not installed, or nothing answers at the address.
        MeshwrightError: a worker was lost.
    """
    ray = _connected(workers, address)
    remote = ray.remote(max_retries=2)(function)
    waiting: dict[Any, int] = {}
    try:
        for number, call in enumerate(calls):
            waiting[remote.remote(*call)] = number
            if len(waiting) >= AHEAD * workers:
                yield from _ended(ray, waiting)
        while waiting:
            yield from _ended(ray, waiting)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, MeshwrightError):
            raise cause from None
        raise MeshwrightError(f"a Ray worker was lost ({type(error).__name__})") from None
    finally:
        ray.shutdown()


def _ended(ray: Any, waiting: dict[Any, int]) -> Iterator[tuple[int, Any]]:
    done, _ = ray.wait(list(waiting), num_returns=1)
    for task in done:
        yield waiting.pop(task), ray.get(task)


def _connected(workers: int, address: str) -> Any:
    """The ray module, connected.

    Raises:
        InputError: it is not installed, or nothing answers at the address.
    """
    if not address:
        os.environ.setdefault(*START_WAIT)
    try:
        import ray
    except ImportError:
        raise InputError("ray is not installed: pip install '.[ray]'", "--executor ray") from None
    quiet = {"configure_logging": True, "logging_level": logging.ERROR, "log_to_driver": False}
    if address:
        check_answers(address)
    wanted = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(**wanted, **quiet)
    except Exception as error:  # ray raises bare exceptions where its processes do not start
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if address:
            raise InputError(f"no Ray cluster at {address} ({reason})", "--address") from None
        raise MeshwrightError(f"Ray does not start on this machine ({reason})") from None
    return ray


def check_answers(address: str) -> None:
    """Refuse an address at which nothing takes a connection; ray itself would wait for minutes.

    Raises:
        InputError: not an address, or no answer.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f"an address is host:port, found {address!r}", "--address")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise InputError(f"no Ray cluster answers at {address} ({error})", "--address") from None
    if address.startswith("ray://"):
        return
    try:
        subprocess.run(
            [sys.executable, "-c", PROBE, address], check=True, capture_output=True, timeout=PROBE_S
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        raise InputError(f"what answers at {address} is no Ray cluster", "--address") from None
