"""A server on loopback that says what a case has it say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LONGEST_REQUEST = 2**16


@contextmanager
def server_saying(models: str, stream: str) -> Iterator[str]:
    """The address of a server that answers GET with one text, everything else with another, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    asked = connection.recv(LONGEST_REQUEST)
                    text = models if asked.startswith(b"GET") else stream
                    connection.sendall(text.encode("utf-8", "replace"))
                    connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        # A blocked accept ends by a shutdown, not by a close.
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
