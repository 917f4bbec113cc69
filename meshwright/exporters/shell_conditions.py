"""Conditions of shell scripts: ``if`` and ``case`` over variables that the script sets."""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from meshwright.exporters.shell_variables import NAME, Variables, arithmetic, expand, unquoted


class Case:
    """A ``case`` statement: the first arm whose pattern matches the word holds."""

    def __init__(self, word: str, depth: int) -> None:
        self.word, self.depth = word, depth
        self.has_known_word, self.arm_was_taken, self.inside = "$" not in word, False, False

    def arm(self, line: str, holds: bool | None) -> tuple[str, bool | None]:
        """The rest of a line after the arm's pattern or end, and whether it holds."""
        if not self.inside and (pattern := re.match(r"\(?([^()]*)\)\s*", line)):
            self.inside, line = True, line[pattern.end() :]
            patterns = [unquoted(part.strip()) for part in pattern[1].split("|")]
            holds = any(fnmatchcase(self.word, part) for part in patterns) and not self.arm_was_taken
            self.arm_was_taken |= holds
            holds = holds if self.has_known_word else None
        if line.rstrip().endswith(";;"):
            self.inside, line = False, line.rstrip().removesuffix(";;").rstrip()
        return line, holds


class Branches:
    """Open conditions of a script, outermost first, and whether their present branches run.

    True and false are known; None stands for a condition that needs the machine.
    """

    def __init__(self) -> None:
        self.running: list[bool | None] = []
        self._taken: list[bool | None] = []
        """Whether a branch of each condition has run."""

    def open(self, holds: bool | None) -> None:
        """Begin a condition or a loop."""
        self.running.append(holds)
        self._taken.append(holds)

    def other(self, holds: bool | None) -> None:
        """Begin an ``elif`` or, with true, an ``else``; it runs where none before it has."""
        taken = self._taken[-1]
        self.running[-1] = False if taken or holds is False else None if taken is None else holds
        self._taken[-1] = taken or (None if taken is None or holds is None else holds)

    def close(self) -> None:
        """End the innermost one."""
        del self.running[-1:], self._taken[-1:]


KEYWORD = re.compile(r"(if|elif|else|then|fi)\b\s*(.*)", re.DOTALL)


def split_lines(line: str) -> list[str]:
    """Statements of a line with an ``if`` or a branch of one; other lines as they are."""
    if KEYWORD.match(line) is None:
        return [line]
    statements: list[str] = []
    for part in _parts(line):
        word = KEYWORD.fullmatch(part)
        if word is None or word[1] in ("if", "elif"):
            statements.append(part)
        else:
            statements += [word[1], *([word[2]] if word[2] else [])]
    return statements


def _parts(line: str) -> list[str]:
    """Parts of a line between semicolons outside of quotation marks."""
    parts = re.findall(r"(?:[^;\"']|\"[^\"]*\"|'[^']*'|[\"'])+", line)
    return [part.strip() for part in parts if part.strip()]


GUARDED = re.compile(rf"(\[\[? .+? \]\]?)\s*(&&|\|\|)\s*((?:export\s+)?{NAME}\+?=.*)")
"""A test, and an assignment that depends on it."""


def guarded(line: str, variables: Variables) -> tuple[str, bool | None]:
    """The statement behind a test on the same line (``[ -z "$X" ] && X=1``), and whether it runs."""
    begun = GUARDED.fullmatch(line.strip())
    if begun is None:
        return line, True
    runs = _compared(begun[1], variables)
    return begun[3], runs if runs is None else runs == (begun[2] == "&&")


def holds(line: str, variables: Variables) -> bool | None:
    """Whether an ``if`` or ``elif`` holds; None for conditions other than comparisons of variables."""
    test = re.sub(r"^(el)?if\b", "", line.strip())
    test = test.strip().removesuffix("then").rstrip().removesuffix(";").rstrip()
    parts = re.split(r"(\|\||&&)", test)
    values = [_compared(part.strip(), variables) for part in parts[::2]]
    either = "||" in parts
    if either in values and len({*parts[1::2]}) < 2:
        return either
    if None in values:
        return None
    return any(values) if either else all(values)


NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}


def _compared(test: str, variables: Variables) -> bool | None:
    """One test: equal, unequal, larger, empty or not."""
    if calculated := re.fullmatch(r"\(\((.*)\)\)", test):
        value = arithmetic(expand(calculated[1], variables), variables)
        return None if value is None else value != "0"
    marked = re.fullmatch(r"(!\s+)?\[\[?\s(.*)\s\]\]?", test)
    if marked is None:
        return None
    try:
        words = shlex.split(re.sub(UNSET, "", expand(marked[2].strip(), variables)))
    except ValueError:
        return None
    value = _of_words(words)
    return value if value is None or not marked[1] else not value


UNSET = rf"\$\{{?({NAME}|\d+)\}}?"
"""A variable without a value, which is empty."""


def _of_words(words: list[str]) -> bool | None:
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        if "$" in words[0] + words[2] or "`" in words[0] + words[2]:
            return None
        return fnmatchcase(words[0], words[2]) == (words[1] != "!=")
    if len(words) == 3 and words[1] in NUMBERS and words[0].isdigit() and words[2].isdigit():
        return NUMBERS[words[1]](int(words[0][:18]), int(words[2][:18]))
    if words and words[0] in ("-z", "-n") and len(words) < 3:
        return (len(words) < 2 or not words[1]) == (words[0] == "-z")
    return None
