"""The one exception family of Meshwright.

    MeshwrightError
    ├── InputError            what the user gave cannot be used (exit code 2)
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

    def __init__(self, kind: str, found: str, allowed: Iterable[str], where: str = "") -> None:
        self.kind, self.found, self.allowed = kind, found, sorted(allowed)
        super().__init__(f"unknown {kind} {found!r}{suggestion(found, self.allowed)}", where)


class InfeasibleError(MeshwrightError):
    """No plan satisfies the constraints; the message says by how much, and what would help."""

    exit_code = 1


def suggestion(found: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" or the list of what is allowed."""
    names = sorted(allowed)
    longer = [name for name in names if found and name.lower().startswith(found.lower())][:3]
    if longer:
        return f"; did you mean {' or '.join(repr(name) for name in longer)}?"
    near = difflib.get_close_matches(found.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    if near:
        best = next(n for n in names if n.lower() == near[0])
        return f"; did you mean {best!r}?"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"; allowed: {shown}" if names else ""
