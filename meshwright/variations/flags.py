"""Changes as typed on a command line: key paths with values, as a variation of a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from hwmodels.errors import InputError, shown
from hwmodels.loading import parse_text
from meshwright.numbers import POWERS, whole_number
from meshwright.variations.question import shown as shown_value
from simulator.plan import field_name

SHORT = re.compile(rf"[0-9][0-9_,]*[{''.join(key for key in POWERS if key)}]", re.IGNORECASE)
"""A number with a suffix: 8k."""


def variation_of(sets: Iterable[str], sweeps: Iterable[str], replan: bool) -> dict[str, Any]:
    """One named variation: all ``sets``, at every point of the sweeps' grid.

    Args:
        sets: ``key=value`` as typed; a value is YAML, or a number as people write it (8k).
        sweeps: ``key=value,value`` as typed.
        replan: whether to search a plan for each run.

    Returns:
        ``variations`` of a scenario; empty where nothing changes.

    Raises:
        InputError: no equals sign, a repeated key, or an unreadable value.
    """
    changed = {key: _value(text, f"--set {key}") for key, text in _pairs(sets, "--set").items()}
    swept = {key: _values(text, f"--sweep {key}") for key, text in _pairs(sweeps, "--sweep").items()}
    if both := changed.keys() & swept.keys():
        raise InputError(f"{min(both)} is set and swept", "--sweep")
    if not (changed or swept or replan):
        return {}
    name = ", ".join(f"{key.rpartition('.')[2]} {shown_value(value)}" for key, value in changed.items())
    if replan:
        name = f"{name}, re-planned" if name else "re-planned"
    return {name or "sweep": {"set": [changed] if changed else [], "sweep": swept, "replan": replan}}


def plan_fields(texts: Iterable[str]) -> dict[str, Any]:
    """Plan fields as typed after ``--fix``, by name.

    Raises:
        InputError: no equals sign, a field given twice, or a value that cannot be read.
    """
    found = _pairs(texts, "--fix", field_name)
    return {name: _value(text, f"--fix {name}") for name, text in found.items()}


def _pairs(texts: Iterable[str], option: str, named: Callable[[str], str] = str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        key = named(key)
        if not equals or not key or not value:
            raise InputError(f"must be key=value, found {shown(text)}", option)
        if key in found:
            raise InputError(f"{key} is given twice", option)
        found[key] = value
    return found


def _value(text: str, where: str) -> Any:
    return _as_written(parse_text(text, where), where)


def _values(text: str, where: str) -> list[Any]:
    """Values separated by commas outside brackets."""
    found = parse_text(f"[{text}]", where)
    if not isinstance(found, list) or not found:
        raise InputError(f"must be values between commas, found {shown(text)}", where)
    return [_as_written(value, where) for value in found]


def _as_written(value: Any, where: str) -> Any:
    return whole_number(value, where) if isinstance(value, str) and SHORT.fullmatch(value) else value
