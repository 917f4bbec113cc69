"""Addresses of Ray clusters: every wrong one is refused within ten seconds."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest

from core.errors import InputError
from planner.executors.ray_cluster import HELLO, PROBE_S, check_answers, in_parallel

RAY = importlib.util.find_spec("ray") is not None


@pytest.mark.parametrize("address", ["nowhere", "host:port", "host:99999", ":1"])
def test_addresses_are_checked(address):
    with pytest.raises(InputError, match="an address is host:port"):
        check_answers(address)


def test_an_address_that_does_not_answer_is_named():
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1 \(Connection refused"):
        check_answers("127.0.0.1:1")


@pytest.fixture
def server():
    """Starts a server that sends given bytes to each client, and returns its address."""
    listeners: list[socket.socket] = []
    threads: list[Thread] = []

    def start(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            with listener, ExitStack() as clients, suppress(OSError):
                while True:
                    client = clients.enter_context(listener.accept()[0])
                    client.sendall(answer)

        threads.append(Thread(target=serve, daemon=True))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)  # ends a waiting accept, as close does not
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "timed out"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server is not Ray"),
        pytest.param(
            HELLO[-9:],  # speaks HTTP/2, then keeps silent
            "the server is not Ray",
            marks=[pytest.mark.slow, pytest.mark.skipif(not RAY, reason="ray is not installed")],
        ),
    ],
)
def test_another_server_is_refused_in_time(server, answer, reason):
    address = server(answer)
    started = time.monotonic()
    with pytest.raises(InputError, match=f"no Ray cluster answers at {address} .{reason}"):
        check_answers(address)
    assert time.monotonic() - started < PROBE_S + 1


@pytest.mark.skipif(RAY, reason="ray is installed")
def test_ray_missing_is_said():
    with pytest.raises(InputError, match="ray is not installed"):
        list(in_parallel(max, [(1, 2)]))


LISTENERS = """
import glob, os
from pathlib import Path
from planner.executors.ray_cluster import _connected

ray = _connected(1, "")
sockets = {}
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        sockets[os.readlink(path)] = Path(path).parts[2]
    except OSError:
        pass
for file in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in Path(file).read_text().splitlines()[1:]:
        words = line.split()
        owner = sockets.get(f"socket:[{words[9]}]")
        if words[3] == "0A" and owner and "ray" in Path(f"/proc/{owner}/cmdline").read_text():
            print(words[1].partition(":")[0])
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(not RAY or not Path("/proc/net/tcp").exists(), reason="needs ray and /proc")
def test_a_local_cluster_listens_on_loopback_only():
    run = subprocess.run([sys.executable, "-c", LISTENERS], capture_output=True, text=True, check=True)
    addresses = set(run.stdout.split())
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
