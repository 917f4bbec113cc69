"""Output of commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import codecs
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

    from meshwright.result_base import Result
    from simulator.models import Model

WIDTH_OF_FILES = 100
"""Width of tables written to a file or a pipe, where COLUMNS is not set."""
MOST_COLUMNS = 10_000
WIDE = 160
"""Minimum terminal width for one line per plan."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]


PLAIN = {"±": "+-", "×": "x", "→": "->", "≤": "<=", "≥": ">=", "µ": "u", "μ": "u", "…": "...", "\u00a0": " "}
"""Replacements for characters that a stream cannot encode; other characters become a question mark."""


def prepare_streams() -> None:
    """Make stdout and stderr accept all characters in any encoding; redirect a closed stderr to a sink."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    codecs.register_error("meshwright", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="meshwright")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in characters), error.end


def print_json(report: Mapping[str, Any]) -> None:
    """Print a report as JSON; equal reports give equal bytes."""
    try:
        typer.echo(json.dumps(report, indent=2, allow_nan=False))
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Discard the rest of stdout, whose reader has seen enough (``| head``); files are still written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def width() -> int:
    """Columns of stdout: COLUMNS, the terminal's, or ``WIDTH_OF_FILES``."""
    fallback = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_OF_FILES
    stated = os.environ.get("COLUMNS", "")
    return int(stated) if stated.isdigit() and 0 < int(stated[:6]) < MOST_COLUMNS else fallback


def wide() -> bool:
    """Whether stdout has room for wide tables."""
    return width() >= WIDE


def show_tables(*parts: RenderableType) -> None:
    """Print tables and text on stdout; a reader that has seen enough (``| head``) changes no file."""
    from rich.console import Console

    class ToReader(Console):
        def on_broken_pipe(self) -> None:
            _discard_output()

    console = ToReader(highlight=False, emoji=False, width=width())
    for part in parts:
        console.print(part)


def tell(answer: Result, json: bool) -> None:
    """Print a result: as JSON, or its tables."""
    if json:
        print_json(answer.to_dict())
    else:
        show_tables(*answer._tables())


def write_page(answer: Result, path: Path | None) -> None:
    """Write the page of a result, if requested.

    Raises:
        InputError: the file cannot be written.
    """
    if path is not None:
        answer.page().write(path)
        note(f"page written: {path}")


def show_on_stderr(*parts: RenderableType) -> None:
    """Print tables and text beside the results."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, emoji=False, width=width())
    for part in parts:
        console.print(part)


def note(line: str) -> None:
    """Print a message to stderr."""
    typer.echo(line, err=True)


def note_model(model: Model, seq_len: int = 0) -> None:
    """Print what a prediction of a model leaves out, and a sequence beyond its longest."""
    if seq_len > model.max_sequence:
        built = f"the {model.max_sequence:,} that {model.name} was built for"
        note(f"note: sequences of {seq_len:,} tokens are longer than {built}")
    if model.left_out:
        note(f"note: left out of {model.name}: {model.left_out}")


MOST_TOKENS = 1e9
"""Tokens of a step beyond which a batch was probably meant in tokens: published ones are below."""


def note_batch(sequences: int, seq_len: int) -> None:
    """Print that a batch is in sequences, where its step has more tokens than any published one."""
    from meshwright.reports.units import counted

    if sequences * seq_len > MOST_TOKENS:
        tokens = counted(sequences * seq_len)
        note(
            f"note: --global-batch counts sequences: {sequences:,} of {seq_len:,} tokens are {tokens} tokens "
            f"a step; did you mean --batch-tokens {counted(sequences)}?"
        )


SHOWN_AFTER_S = 0.5
"""Seconds of work before a progress bar is drawn."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, on terminals only; yields the function that updates it (share of the
    work)."""
    with ExitStack() as open_bar:
        yield _Bar(what, open_bar) if sys.stderr.isatty() else lambda share: None


class _Bar:
    """A bar that is drawn once the work has taken ``SHOWN_AFTER_S``."""

    def __init__(self, what: str, stack: ExitStack) -> None:
        self._what, self._stack, self._began = what, stack, monotonic()
        self._update: Callable[[float], None] | None = None

    def __call__(self, share: float) -> None:
        """Draw the finished share of the work."""
        if self._update is None:
            if monotonic() - self._began < SHOWN_AFTER_S:
                return
            self._update = self._drawn()
        self._update(share)

    def _drawn(self) -> Callable[[float], None]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        bar = self._stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
        task = bar.add_task(self._what, total=1.0)
        return lambda share: bar.update(task, completed=share)
