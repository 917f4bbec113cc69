"""Spreading independent work over a Ray cluster: the same call as ``local.in_parallel``."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from threading import Thread
from typing import Any, TypeVar

from core.errors import InputError, MeshwrightError
from planner.executors.local import cores
from planner.store import program

Result = TypeVar("Result")

CONNECT_S = 2.0
"""Longest wait for an address to take a connection, and for its first bytes."""
PROBE_S = 9.0
"""Longest time in which an address must prove to be a Ray cluster; ray itself would try for 40 s."""
AHEAD = 2
"""Calls submitted per worker."""
START_WAIT = ("RAY_raylet_start_wait_time_s", "120")
"""Setting of Ray where the environment has none: a busy machine starts its processes in half a minute."""
LOOPBACK = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
"""Setting of Ray, read at its import, with which the processes of a local cluster listen on 127.0.0.1 only
(ray/_private/services.py: get_node_ip_address)."""
SETTINGS = b"\x04"
"""Frame type in HTTP/2."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + SETTINGS + b"\0\0\0\0\0"
"""Preface of an HTTP/2 client with an empty SETTINGS frame (RFC 9113, 3.4). A gRPC server, as Ray's, answers
with its own SETTINGS."""
PROBE = """
import sys
address = sys.argv[1]
if address.startswith("ray://"):
    import ray
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
else:
    from ray._raylet import GcsClient
    GcsClient(address=address).internal_kv_exists(b"meshwright", namespace=None, timeout=5)
"""


def in_parallel(
    function: Callable[..., Result],
    calls: Iterable[tuple[Any, ...]],
    workers: int | None = None,
    address: str = "",
) -> Iterator[tuple[int, Result]]:
    """Call a function many times on a Ray cluster.

    Args:
        function: importable by name on every node.
        calls: the arguments of each call; taken as they are needed.
        workers: calls at work at once, None for all CPUs of the cluster; also the size of a cluster that this
            starts itself.
        address: ``host:port`` or ``ray://host:port`` of a running cluster; empty starts one on this machine.

    Yields:
        The number of a call and its result, in the order in which calls end.

    Raises:
        InputError: ray is not installed, no Ray cluster answers at the address, or its nodes have another
            version of Meshwright.
        MeshwrightError: a worker was lost.
    """
    ray = _connected(workers or cores(), address)
    if workers is None:
        workers = int(ray.cluster_resources().get("CPU", 1))
    remote = ray.remote(max_retries=2)(_answer)
    waiting: dict[Any, int] = {}
    try:
        for number, call in enumerate(calls):
            waiting[remote.remote(program(), function, *call)] = number
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


def _answer(version: str, function: Callable[..., Result], *call: Any) -> Result:
    """Call the function on a node of the same version as the caller.

    Raises:
        InputError: another version.
    """
    if program() != version:
        raise InputError("the nodes have another version of Meshwright than this machine", "--address")
    return function(*call)


def _ended(ray: Any, waiting: dict[Any, int]) -> Iterator[tuple[int, Any]]:
    done, _ = ray.wait(list(waiting), num_returns=1)
    for task in done:
        yield waiting.pop(task), ray.get(task)


def _connected(workers: int, address: str) -> Any:
    """The ray module, connected.

    Raises:
        InputError: it is not installed, or nothing answers at the address.
    """
    check(address)
    if not address:
        os.environ.setdefault(*START_WAIT)
        os.environ.setdefault(*LOOPBACK)
    import ray

    quiet = {"configure_logging": True, "logging_level": logging.ERROR, "log_to_driver": False}
    options = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(**options, **quiet)
    except Exception as error:  # ray raises bare exceptions where its processes do not start
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if address:
            raise InputError(f"no Ray cluster at {address} ({reason})", "--address") from None
        raise MeshwrightError(f"Ray does not start on this machine ({reason})") from None
    return ray


def check(address: str) -> None:
    """Refuse to start without ray, or at an address without a Ray cluster.

    Raises:
        InputError: ray is not installed, or as ``check_answers``.
    """
    if find_spec("ray") is None:
        raise InputError("ray is not installed: pip install '.[ray]'", "--executor ray")
    if address:
        check_answers(address)


@cache
def check_answers(address: str) -> None:
    """Refuse an address at which no Ray cluster answers, within ``PROBE_S``.

    Raises:
        InputError: not an address, no answer, or another kind of server.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InputError(f"an address is host:port, found {address!r}", "--address")
    started = time.monotonic()
    problems: list[str] = []
    # A name server that does not answer has no time limit of its own.
    hello = Thread(target=lambda: problems.append(_hello(host.strip("[]"), int(port))), daemon=True)
    hello.start()
    hello.join(2 * CONNECT_S)
    if not problems:
        raise InputError(f"no Ray cluster answers at {address} (timed out)", "--address")
    if problems[0]:
        raise InputError(f"no Ray cluster answers at {address} ({problems[0]})", "--address")
    left = PROBE_S - (time.monotonic() - started)
    command = [sys.executable, "-c", PROBE, address]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=left)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        raise InputError(
            f"no Ray cluster answers at {address} (the server is not Ray)", "--address"
        ) from None


def _hello(host: str, port: int) -> str:
    """Reason why no gRPC server answers; empty where one does."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S) as connection:
            connection.sendall(HELLO)
            grpc = connection.recv(9)[3:4] == SETTINGS
    except TimeoutError:
        return "timed out"
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "" if grpc else "the server is not Ray"
