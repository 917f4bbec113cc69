"""Result files of hundreds of MiB, read without the lists of single requests that nobody learns from.

``vllm bench serve --save-detailed`` writes the gap before every token. The lexer below copies a file's text
but for the values of such keys, so that what remains is parsed as any small file.
"""

from __future__ import annotations

import re
from pathlib import Path

from core.errors import InputError, shown_path
from core.parsing import no_such_file

DETAILS = frozenset(
    {
        *("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors", "start_times"),
        *("latencies", "queue_times", "requests", "records", "request_samples", "samples", "http_codes"),
    }
)
"""Keys whose lists hold a value a request: vllm bench serve, SGLang's bench_serving, guidellm, AIPerf."""
MOST_BYTES = 512 * 2**20
MOST_KEPT = 4 * 2**20
"""Characters that remain of a file."""
LONGEST_TOKEN = 64 * 2**20
"""Characters of one text in a file."""
PIECE = 2**20
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^"{}\[\]]+', re.DOTALL)
OPENING, CLOSING = "{[", "}]"


def read_lean(path: Path) -> str:
    """The text of a JSON or JSON Lines file without the values of `DETAILS`, which read null.

    Raises:
        InputError: missing, unreadable, above 512 MiB, or too large without its details.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if (size := path.stat().st_size) > MOST_BYTES:
                raise InputError(f"has {size / 2**20:,.0f} MiB; at most 512 MiB are read", shown_path(path))
            lexer = _Lexer(path)
            while piece := file.read(PIECE):
                lexer.feed(piece)
            return lexer.end()
    except FileNotFoundError:
        raise no_such_file(path) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", shown_path(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", shown_path(path)) from None


class _Lexer:
    """Tokens of JSON text in pieces: strings, brackets, and what lies between."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rest, self.parts = "", list[str]()
        self.length = self.depth = 0
        self.named = self.drops = False

    def feed(self, piece: str) -> None:
        """Read a further piece; a token at its end may go on in the next."""
        text, place = self.rest + piece, 0
        for match in TOKEN.finditer(text):
            if match.start() != place or match.end() == len(text):
                break
            self._token(match[0])
            place = match.end()
        self.rest = text[place:]
        if len(self.rest) > LONGEST_TOKEN:
            raise InputError("holds a text of more than 64 MiB", shown_path(self.path))

    def end(self) -> str:
        """The text that remains."""
        for match in TOKEN.finditer(self.rest):
            self._token(match[0])
        return "".join(self.parts)

    def _token(self, token: str) -> None:
        if self.depth:  # inside a dropped list or mapping
            self.depth += (token in OPENING) - (token in CLOSING)
            return
        if self.drops and token.strip():
            self.drops = False
            if token in OPENING:
                self.depth = 1
                token = "null"
            elif token[0] == '"':
                token = "null"
        if token[0] == '"':
            self.named = token[1:-1] in DETAILS
        elif token.lstrip()[:1] == ":":
            self.drops, self.named = self.named and not token.lstrip()[1:].strip(), False
        self.length += len(token)
        if self.length > MOST_KEPT:
            problem = "is larger than 4 MiB without the lists of single requests; is it a result of a client?"
            raise InputError(problem, shown_path(self.path))
        self.parts.append(token)
