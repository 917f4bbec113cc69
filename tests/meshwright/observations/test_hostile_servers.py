"""`observe` against servers that answer nothing, too much, too slowly, or what no server may."""

import contextlib
import json
import socket
import threading
import time

import pytest

from meshwright.observations import live_server
from meshwright.observations.completions import printable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def event(value):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


TOKEN = event({"choices": [{"text": "x"}]})
USAGE = {"prompt_tokens": 7, "completion_tokens": 8}


def stream(*events, end=b"data: [DONE]\n\n"):
    return HEAD + b"".join(events) + end


def usage_of(**changed):
    return stream(TOKEN, event({"choices": [], "usage": {**USAGE, **changed}}))


SAYS = {
    "nothing": (b"", "no answer"),
    "no-http": (b"SSH-2.0-OpenSSH\r\n", "no answer"),
    "status-escapes": (
        b"HTTP/1.1 500 \x1b]0;owned\x07\r\nContent-Length: 2\r\n\r\nno",
        "answered 500 ?]0;owned?",
    ),
    "body-escapes": (b"HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\n\x1b[31mx", "?[31m"),
    "no-json": (stream(event(b"{nothing")), "the stream broke"),
    "deep-json": (stream(event(b"[" * 30_000)), "the stream broke"),
    "a-list": (stream(event([1])), "an event is no object"),
    "choices-a-number": (stream(event({"choices": 5})), "choices are no list"),
    "choices-of-numbers": (stream(event({"choices": [5]})), "choices are no list"),
    "usage-a-text": (stream(TOKEN, event({"usage": "five"})), "usage is no object"),
    "negative": (usage_of(prompt_tokens=-5), "usage.prompt_tokens is no number of tokens: -5"),
    "text": (usage_of(completion_tokens="five"), "no number of tokens: 'five'"),
    "infinite": (stream(TOKEN, event(b'{"usage": {"prompt_tokens": 1e400, "completion_tokens": 1}}')), "inf"),
    "digits": (stream(event(b"1" * 5000)), "the stream broke"),
    "true": (usage_of(prompt_tokens=True), "no number of tokens: True"),
    "no-usage": (stream(TOKEN), "states no usage"),
    "zero": (usage_of(completion_tokens=0), "states no usage"),
    "no-token": (stream(event({"usage": USAGE})), "streamed no token"),
    "long-line": (HEAD + b"data: " + b"x" * 200_000, "longer than 65,536 bytes"),
    "headers": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000, "no answer"),
}
"""What a server says to a completion, and words of the message."""

REPEATS = {
    "endless-tokens": (HEAD, TOKEN),
    "a-byte-at-a-time": (HEAD, b"d"),
    "blank-lines": (HEAD, b"\n"),
    "continue-without-end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "one-line-without-end": (HEAD, b"x" * 20_000),
    "slow-headers": (b"HTTP/1.1 200 OK\r\n", b"A"),
    "silence": (b"", b""),
}
"""What it says first, and then again and again."""


@contextlib.contextmanager
def server_that(says, again=b""):
    """The address of a server that lists a model, and answers completions so."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer(connection):
        with connection, contextlib.suppress(OSError):
            asked = connection.recv(65536)
            if asked.startswith(b"GET"):
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"data": [{"id": "tiny"}]}).encode()
                )
                return
            connection.sendall(says)
            while again is not None and not ended.is_set():
                connection.sendall(again)
                time.sleep(0.002)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    ended.set()
    listening.close()


@pytest.mark.parametrize("mode", SAYS)
def test_what_no_server_may_say_is_one_sentence(refused, mode):
    says, words = SAYS[mode]
    with server_that(says, None) as url:
        message = refused("observe", url, "--seconds", "1", "--concurrency", "1")
    assert words in message
    assert message.strip().isprintable()


@pytest.mark.parametrize("mode", REPEATS)
def test_a_request_ends_at_its_deadline(refused, mode, monkeypatch):
    monkeypatch.setattr(live_server, "LEAST_DEADLINE_S", 0.5)
    started = time.monotonic()
    with server_that(*REPEATS[mode]) as url:
        message = refused("observe", url, "--seconds", "1", "--concurrency", "1")
    assert time.monotonic() - started < 10
    assert "timed out" in message or "longer than 65,536 bytes" in message


@pytest.mark.parametrize(
    "listed", [{"data": [{"id": 5}]}, {"data": [{"id": "\x1b[31m"}]}, {"data": []}, [], 5]
)
def test_a_model_without_a_name_is_refused(refused, listed):
    body = json.dumps(listed).encode()
    listening = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    message = refused("observe", f"http://127.0.0.1:{listening.getsockname()[1]}")
    thread.join()
    listening.close()
    assert "give --model" in message


def test_text_of_a_server_is_cut_and_printable():
    said = printable("a\x1b]0;x\x07\nb" + "y" * 1000)
    assert said.startswith("a?]0;x? b") and len(said) == 200 and said.isprintable()
