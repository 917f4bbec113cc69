"""The one exception family of Meshwright.

    MeshwrightError
    ├── InputError            unusable input of the user (exit code 2)
    │   └── UnknownNameError  a name that no catalogue, field or choice has
    └── InfeasibleError       nothing fits: an answer, not a mistake (exit code 1)

A message says what is wrong, where (file and key path), what was found, what is
allowed, and the nearest valid name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MeshwrightError(Exception):
    """Base of everything that Meshwright raises on purpose."""

    exit_code = 2


class InputError(MeshwrightError):
    """A value, a file or a combination of options that cannot be used.

    Args:
        problem: what is wrong, with the offending value and what is allowed.
        where: file and key path, or command-line option; empty when there is none.
    """

    def __init__(self, problem: str, where: str = "") -> None:
        self.problem = problem
        self.where = where
        super().__init__(f"{where}: {problem}" if where else problem)


class UnknownNameError(InputError):
    """A name that is not among the valid ones; the message offers the nearest."""

    def __init__(self, kind: str, unknown: str, allowed: Iterable[str], where: str = "") -> None:
        self.kind, self.unknown, self.allowed = kind, unknown, sorted(allowed)
        super().__init__(f"unknown {kind} {shown(unknown)}{suggestion(unknown, self.allowed)}", where)


class Notice(FutureWarning):
    """A sentence for whoever asks: an old spelling, a choice that does not fit. No other warning is shown."""


class InfeasibleError(MeshwrightError):
    """No plan satisfies the constraints; the message says by how much, and what would help."""

    exit_code = 1


def suggestion(unknown: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" or the list of what is allowed."""
    names = sorted(allowed)
    longer = [name for name in names if unknown and name.lower().startswith(unknown.lower())][:3]
    if longer:
        return f"; did you mean {' or '.join(repr(name) for name in longer)}?"
    closest = difflib.get_close_matches(unknown.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    if closest:
        best = next(n for n in names if n.lower() == closest[0])
        return f"; did you mean {best!r}?"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; allowed: {shown}" if names else ""


LONGEST_SHOWN, LONGEST_PATH = 60, 300
"""Characters of a value and of a path in a message."""


def shown(value: object) -> str:
    """A value for a message, cut to one short piece of text; built without expanding it whole."""
    if isinstance(value, str):
        text = repr(value[: LONGEST_SHOWN + 1])
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**LONGEST_SHOWN:
        return f"a whole number of {value.bit_length()} bits"
    elif isinstance(value, dict | list | tuple | set | frozenset):
        text = _short_repr(value)
    else:
        text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _short_repr(value: object) -> str:
    from reprlib import Repr

    short = Repr()
    short.maxlevel, short.maxstring, short.maxother = 3, LONGEST_SHOWN, LONGEST_SHOWN
    short.maxlist = short.maxdict = short.maxtuple = short.maxset = short.maxfrozenset = LONGEST_SHOWN // 3
    short.maxlong = LONGEST_SHOWN
    return short.repr(value)


def shown_path(path: object) -> str:
    """A path for a message: cut in the middle, with characters that a terminal would act on escaped."""
    text = str(path)
    if len(text) > LONGEST_PATH:
        text = f"{text[:40]}...{text[-40:]}"
    return text if text.isprintable() else repr(text)


PLAIN_PROBLEMS = (
    ("Value error, ", ""),
    ("Input should be a valid ", "must be a "),
    ("Input should be ", "must be "),
    ("must be a integer", "must be a whole number"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "above"),
    ("less than", "below"),
)


def plain_problem(message: str) -> str:
    """A message of pydantic in plain words: "must be at least 1", "must be a whole number"."""
    for words, plain in PLAIN_PROBLEMS:
        message = message.replace(words, plain, 1)
    return message.partition(", unable to parse string")[0]
