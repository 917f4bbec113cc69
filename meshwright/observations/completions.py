"""A client of an OpenAI-compatible server that trusts nothing it is sent.

Each request has a deadline for all of its reads together, each line a longest length, and each event becomes
checked numbers in one place (`event_of`). Text of the server is printable when it reaches a message.
"""

from __future__ import annotations

import io
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from core.errors import InputError, shown

LONGEST_LINE = 2**16
"""Bytes of a line of a stream."""
LONGEST_LIST = 2**20
"""Bytes of the list of models."""
LONGEST_SAID = 200
"""Characters of a server's text in a message."""
MOST_TOKENS = 2**24
DONE = b"[DONE]"


@dataclass(frozen=True)
class Answer:
    """One streamed request: seconds to the first token and to the end, and tokens as the server counts."""

    first_s: float
    end_s: float
    prompt: int
    output: int

    @property
    def token_s(self) -> float:
        """Mean time per output token after the first."""
        return (self.end_s - self.first_s) / max(self.output - 1, 1)


@dataclass(frozen=True)
class Event:
    """What an event of a stream says: whether it holds text, and tokens so far where it counts them."""

    text: bool
    usage: tuple[int, int] | None
    """Tokens of the prompt and of the output."""


def printable(text: str) -> str:
    """A server's text for a message: one line, cut, without characters that a terminal would act on."""
    words = " ".join(text[: 4 * LONGEST_SAID].split())
    return "".join(each if each.isprintable() else "?" for each in words)[:LONGEST_SAID]


def event_of(line: bytes) -> Event:
    """The checked numbers of an event's JSON.

    Raises:
        ValueError: no JSON object, choices that are no list of objects, or a count that is no number.
    """
    try:
        event = json.loads(line)
    except RecursionError:
        raise ValueError("an event is nested too deeply") from None
    if not isinstance(event, Mapping):
        raise ValueError(f"an event is no object: {shown(event)}")
    choices = event.get("choices") or []
    if not (isinstance(choices, list) and all(isinstance(choice, Mapping) for choice in choices)):
        raise ValueError(f"choices are no list of objects: {shown(choices)}")
    usage = event.get("usage")
    if usage is None:
        return Event(any(choice.get("text") for choice in choices), None)
    if not isinstance(usage, Mapping):
        raise ValueError(f"usage is no object: {shown(usage)}")
    counts = tuple(_tokens(usage, name) for name in ("prompt_tokens", "completion_tokens"))
    return Event(any(choice.get("text") for choice in choices), (counts[0], counts[1]))


def _tokens(usage: Mapping[str, Any], name: str) -> int:
    count = usage.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST_TOKENS:
        raise ValueError(f"usage.{name} is no number of tokens: {shown(count)}")
    return count


class _Timed(io.RawIOBase):
    """What a socket receives until a deadline, which one timeout a read does not bound."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connected, deadline
        # Holds the socket open after the connection is closed, as http.client relies on.
        self._file = connected.makefile("rb", buffering=0)

    def close(self) -> None:
        """Close the socket with its last file."""
        self._file.close()
        super().close()

    def readable(self) -> bool:
        """A socket is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive what has come.

        Raises:
            TimeoutError: the deadline is over.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)
        return self._file.readinto(buffer) or 0


class _Socket:
    """A socket as `HTTPResponse` takes one."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._file = io.BufferedReader(_Timed(connected, deadline))

    def makefile(self, _: str) -> io.BufferedIOBase:
        """The file that the response is read from."""
        return self._file


class Server:
    """A server's completions endpoint.

    Args:
        url: of the server, as ``http://host:8000``.
        deadline_s: longest time of a request.

    Raises:
        InputError: no address of a server.
    """

    def __init__(self, url: str, deadline_s: float) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            place = parts.hostname, parts.port
        except ValueError:
            parts = place = None
        if parts is None or place is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"must be the address of a server as http://host:8000, found {shown(url)}", "URL"
            )
        self.url, self.deadline_s = url, deadline_s
        self.kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self.place = parts.hostname, parts.port
        self.base = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        key = os.environ.get("OPENAI_API_KEY")
        self.headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )

    def open(self, method: str, path: str, body: dict[str, Any] | None = None) -> HTTPResponse:
        """The answer of a request.

        Raises:
            InputError: no connection, or another status than 200.
        """
        connection = self.kind(*self.place, timeout=self.deadline_s)
        deadline = time.monotonic() + self.deadline_s

        def response_of(connected: socket.socket, **options: Any) -> HTTPResponse:
            return HTTPResponse(_Socket(connected, deadline), **options)  # type: ignore[arg-type]

        connection.response_class = response_of  # type: ignore[assignment]
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, self.base + path, text, self.headers)
            response = connection.getresponse()
            if response.status == 200:
                return response
            answer = response.read(LONGEST_SAID).decode("utf-8", "replace")
        except (OSError, HTTPException, ValueError) as error:
            connection.close()
            raise InputError(f"no answer: {printable(str(error))}", self.url) from None
        connection.close()
        said = printable(f"{response.status} {response.reason}: {answer}")
        raise InputError(f"answered {said}", self.url + path)

    def model(self) -> str:
        """The first model that the server lists.

        Raises:
            InputError: it lists none.
        """
        try:
            with self.open("GET", "/models") as response:
                name = json.loads(response.read(LONGEST_LIST))["data"][0]["id"]
        except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError):
            raise InputError("lists no model; give --model", self.url) from None
        if not isinstance(name, str) or not name or len(name) > LONGEST_SAID or not name.isprintable():
            raise InputError(f"lists a model without a name: {shown(name)}; give --model", self.url)
        return name

    def complete(self, model: str, prompt: str, tokens: int) -> Answer:
        """Stream one completion.

        Raises:
            InputError: no answer, no token, or no count of tokens.
        """
        body = {
            "model": model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sent, first, last, usage = time.perf_counter(), 0.0, 0.0, (0, 0)
        try:
            with self.open("POST", "/completions", body) as response:
                for event in _events(response):
                    if event.text:
                        last = time.perf_counter() - sent
                        first = first or last
                    usage = event.usage or usage
        except (OSError, HTTPException, ValueError) as error:
            raise InputError(f"the stream broke: {printable(str(error))}", self.url) from None
        if not first:
            raise InputError("streamed no token", self.url)
        if not all(usage):
            raise InputError("states no usage (prompt_tokens, completion_tokens) at a stream's end", self.url)
        return Answer(first, last, *usage)


def _events(response: HTTPResponse) -> Iterator[Event]:
    """Server-sent events of a stream up to its end.

    Raises:
        ValueError: a line that is too long, or an event that cannot be read.
    """
    while line := response.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes")
        line = line.strip()
        if line.startswith(b"data:"):
            line = line.removeprefix(b"data:").strip()
            if line == DONE:
                return
            yield event_of(line)
