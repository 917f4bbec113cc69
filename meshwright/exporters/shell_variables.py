"""Variables and arithmetic of shell scripts, replaced without running anything."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from typing import Any

from core.errors import InputError, shown

MOST_EXPANSIONS = 40
MOST_STATEMENT = 100_000
"""Characters of one statement, before and after its variables are replaced."""
MOST_WORK = 10_000_000
"""Characters of all replaced variables together: nested variables grow exponentially."""
NAME = r"[A-Za-z_][A-Za-z0-9_]*"


class Variables(dict[str, str]):
    """Variables of a script, and the characters that their replacement may still write."""

    def __init__(self, where: str = "") -> None:
        super().__init__()
        self.where, self.left = where, MOST_WORK

    def spend(self, text: str) -> str:
        """Count replaced text.

        Raises:
            InputError: the script's variables expand to more than ``MOST_WORK`` characters.
        """
        self.left -= len(text) + 1
        if self.left < 0:
            raise InputError(
                f"its variables expand to more than {MOST_WORK:,} characters; give the command itself",
                self.where,
            )
        return text


def unquoted(value: str) -> str:
    """A word without the quotes around all of it."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def expand(text: str, variables: Variables) -> str:
    """Text with variables and arithmetic replaced; variables without a value stay.

    Raises:
        InputError: the text grows beyond ``MOST_STATEMENT`` characters, or all texts beyond ``MOST_WORK``.
    """

    def default(match: re.Match[str]) -> str:
        return variables.get(match[1]) or unquoted(match[2])

    def plain(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0])

    def words(match: re.Match[str]) -> str:  # words of an unquoted array are split again
        return variables.get(match[1], "").replace('"', "")

    def quoted_words(match: re.Match[str]) -> str:
        return variables.get(match[1], "")

    def calculated(match: re.Match[str]) -> str:
        return arithmetic(match[1], variables) or match[0]

    replaced = (
        (rf"\"\$\{{({NAME})\[[@*]\]\}}\"", quoted_words),
        (rf"\$\{{({NAME})\[[@*]\]\}}", words),
        (rf"\$\{{({NAME}|\d):?-([^{{}}]*)\}}", default),
        (rf"\$\{{({NAME})\}}", plain),
        (rf"\$({NAME})", plain),
        (r"\$\(\(([^()$]*(?:\([^()$]*\)[^()$]*)*)\)\)", calculated),
    )
    for _ in range(MOST_EXPANSIONS):
        before = text
        for pattern, replace in replaced:
            text = re.sub(pattern, lambda match, replace=replace: variables.spend(replace(match)), text)
        if len(text) > MOST_STATEMENT:
            raise InputError(
                f"a statement expands to more than {MOST_STATEMENT:,} characters: {shown(text[:40])}",
                variables.where,
            )
        if text == before:
            break
    return text


OPERATORS: Mapping[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARED: Mapping[type, Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
LARGEST = 10**15


def arithmetic(text: str, variables: Mapping[str, str]) -> str | None:
    """The value of a shell's whole-number arithmetic; None where it has none."""
    named = re.sub(rf"\$?({NAME})", lambda m: variables.get(m[1], m[0])[:500], text[:500])
    if choice := re.fullmatch(r"([^?:]*)\?([^?:]*):([^?:]*)", named):
        named = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})"
    named = named.replace("&&", " and ").replace("||", " or ")
    try:
        return str(_calculated(ast.parse(named.strip()[:500], mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _calculated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < LARGEST:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](_calculated(node.left), _calculated(node.right))
        if abs(value) < LARGEST:
            return value
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        return int(COMPARED[type(node.ops[0])](_calculated(node.left), _calculated(node.comparators[0])))
    if isinstance(node, ast.BoolOp):
        values = [_calculated(value) != 0 for value in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.IfExp):
        return _calculated(node.body if _calculated(node.test) else node.orelse)
    raise ValueError
