"""Configurations as dotted keys: YAML with the files below it, and words of Hydra in a command."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.loading import exists
from core.parsing import read_text
from meshwright.exporters.tuning_sharding import NOT_YAML, yaml_of

DEPTH = 8
"""Most files below a file."""
Flat = dict[str, Any]


def flat_yaml(text: str, path: Path | None, depth: int = 0) -> Flat:
    """A YAML file with the recipes that its ``defaults`` names, as dotted keys; empty if it is none."""
    data = yaml_of(text)
    if not isinstance(data, Mapping):
        return {}
    below = data.get("defaults")
    flat: Flat = {}
    if isinstance(below, str) and path is not None and depth < DEPTH:
        file = path.parent / below
        if exists(file) and file.is_file():
            flat |= flat_yaml(read_text(file), file, depth + 1)
    return flat | _flatten({key: value for key, value in data.items() if key not in ("defaults", "hydra")})


def _flatten(data: Mapping[Any, Any], above: str = "") -> Flat:
    flat: Flat = {}
    for key, value in data.items():
        name = f"{above}{key}"
        flat |= _flatten(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return flat


def overrides(text: str) -> Flat:
    """Hydra's words of a command, with the script's own variables put in."""
    from meshwright.exporters.shell import expanded_commands

    flat: Flat = {}
    for command in expanded_commands(_computed(text), "command"):
        for word in command.split():
            key, equals, value = word.lstrip("+").partition("=")
            if equals and re.fullmatch(r"[a-z_]+(\.\w+)+", key):
                flat[key] = _scalar(value.strip("\"'"))
    return flat


ASSIGNED = re.compile(r"^\s*(?:export\s+)?(\w+)=(\$\(\(.*\)\)|\$\{\w+:-\d+\}|\d+)\s*(?:#.*)?$", re.MULTILINE)
COMPUTED = re.compile(r"\$\(\(([^$`]{1,200}?)\)\)(?!\))")


def _computed(text: str) -> str:
    """A script whose arithmetic on whole numbers is done: ``$((1024 * 8))`` is 8192."""
    numbers: dict[str, int] = {}

    def value(match: re.Match[str]) -> str:
        names = re.sub(r"[A-Za-z_]\w*", lambda name: str(numbers.get(name[0], name[0])), match[1])
        try:
            return str(_number(ast.parse(names.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return match[0]

    lines = []
    for line in text.splitlines():
        named = re.sub(r"\$\{(\w+)\}", lambda name: str(numbers.get(name[1], name[0])), line)
        done = COMPUTED.sub(value, named if "$((" in line else line)
        if assigned := ASSIGNED.match(done):
            digits = re.search(r"\d+", assigned[2])
            if digits:
                numbers[assigned[1]] = int(digits[0][:15])
        lines.append(done)
    return "\n".join(lines)


def _number(tree: ast.expr) -> int:
    """A sum, difference, product or quotient of whole numbers.

    Raises:
        ValueError: anything else.
    """
    operations = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.floordiv,
    }
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.BinOp) and type(tree.op) in operations:
        return operations[type(tree.op)](_number(tree.left), _number(tree.right))
    raise ValueError


def _scalar(value: str) -> Any:
    """A word as YAML reads it; the word itself where it is no YAML."""
    try:
        return yaml.safe_load(value)
    except NOT_YAML:
        return value
