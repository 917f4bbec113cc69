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
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from core.absent import absent

MemberT = TypeVar("MemberT")

SHORT_NAMES = {
    "tp": "tensor",
    "pp": "pipeline",
    "vpp": "virtual_pipeline",
    "cp": "context",
    "dp": "data",
    "ep": "expert",
    "etp": "expert_tensor",
    "mbs": "micro_batch",
    "gbs": "global_batch",
    "sp": "sequence_parallel",
}
"""Keys by the abbreviations of launchers and papers."""
OTHER_KEYS = {
    "nodes": "gpus",
    "num_gpus": "gpus",
    "num_nodes": "gpus",
    "batch_size": "global_batch",
    "sequence_length": "seq_len",
    "tensor_parallel": "tensor",
    "tensor_parallel_size": "tensor",
    "pipeline_parallel": "pipeline",
    "pipeline_parallel_size": "pipeline",
    "expert_parallel": "expert",
    "data_parallel": "data",
}
"""Keys by the names that files of launchers give them."""


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


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put an `InputError` of the block at ``where``, the key path of what the user wrote."""
    try:
        yield
    except InputError as error:
        raise InputError(error.problem, where) from None


class UnknownNameError(InputError):
    """A name that is not among the valid ones; the message offers the nearest."""

    def __init__(
        self, kind: str, unknown: str, allowed: Iterable[str], where: str = "", nearest: Iterable[str] = ()
    ) -> None:
        self.kind, self.unknown, self.allowed = kind, unknown, sorted(allowed)
        begun = kind == "model" and any(name.startswith(str(unknown).lower()) for name in self.allowed)
        words = absent(kind, unknown) if isinstance(unknown, str) and not begun else ""
        meant = f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
        hint = f"; {words}" if words else meant or suggestion(unknown, self.allowed)
        if kind == "model" and "did you mean" not in hint and not words:
            hint = "; `meshwright show models` lists those there are; for another give its config.json"
        super().__init__(f"unknown {kind} {shown(unknown)}{hint}", where)


def named(kind: str, name: str, members: Mapping[str, MemberT], where: str = "") -> MemberT:
    """The member of a registry.

    Args:
        kind: what the members are, for the message.
        name: of one of them.
        members: by name.
        where: key path or option of the name.

    Raises:
        UnknownNameError: there is none of that name (the nearest is offered).
    """
    if name not in members:
        raise UnknownNameError(kind, name, members, where)
    return members[name]


class Notice(FutureWarning):
    """A sentence for whoever asks: an old spelling, a choice that does not fit. No other warning is shown."""


class InfeasibleError(MeshwrightError):
    """No plan satisfies the constraints; the message says by how much, and what would help."""

    exit_code = 1


def distance(first: str, other: str) -> int:
    """Letters to insert, remove, replace, or swap with their neighbour, to turn a text into another."""
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for place, letter in enumerate(first, 1):
        above, row = row, [place]
        for index, target in enumerate(other, 1):
            cost = min(above[index] + 1, row[-1] + 1, above[index - 1] + (letter != target))
            swapped = place > 1 and index > 1 and letter == other[index - 2] and first[place - 2] == target
            row.append(min(cost, before[index - 2] + 1) if swapped else cost)
        before = above
    return row[-1]


FEW = 20
"""Names up to which the closest is offered however far it is: fields and choices, not catalogues."""

SHORTEST = 4
"""Letters of a word from which a name that holds it is near."""


def _near(unknown: str, name: str) -> bool:
    """Whether a name is a few letters off, its beginning or the end of its path is, or it holds the word."""
    parts = name, name[: len(unknown)], name.rpartition(".")[2]
    limit, last = max(1, len(unknown) // 4), unknown.rpartition(".")[2]
    holds = len(last) >= SHORTEST and last in name
    return holds or any(distance(unknown, part) <= limit for part in parts)


def suggestion(unknown: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for a name a few letters off, or the list of what is allowed."""
    names = sorted(allowed)
    if (same := (SHORT_NAMES | OTHER_KEYS).get(unknown.lower())) in names:
        return f"; did you mean {same!r}?"
    longer = [name for name in names if unknown and name.lower().startswith(unknown.lower())][:3]
    if not longer and len(unknown) >= SHORTEST:
        longer = [name for name in names if unknown.lower() in re.split(r"[-_.]", name.lower())][:3]
    if longer:
        return f"; did you mean {' or '.join(repr(name) for name in longer)}?"
    lowered = {name.lower(): name for name in names}
    closest = difflib.get_close_matches(unknown.lower(), lowered, n=3, cutoff=0.5)
    offered = [name for name in closest if len(names) <= FEW or _near(unknown.lower(), name)]
    if offered:
        return f"; did you mean {lowered[offered[0]]!r}?"
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; allowed: {listed}" if names else ""


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
