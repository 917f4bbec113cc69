"""Changes as typed on a command line: key paths with values, as a variation of a scenario."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from core.errors import InputError, shown
from core.loading import parse_text
from meshwright.questions.numbers import POWERS, whole_number
from meshwright.variations.question import SWEPT, abbreviated
from planner.training.constraints import field_value, is_typed, pairs
from simulator.plan import field_name

SHORT = re.compile(rf"[0-9][0-9_,]*[{''.join(key for key in POWERS if key)}]", re.IGNORECASE)
"""A number with a suffix: 8k."""
RANGE = re.compile(r"[0-9][0-9a-zA-Z]*\.\.[0-9][0-9a-zA-Z]*")
"""A range, which `plan size --gpus` takes and a sweep does not."""
KEYS = re.compile(r",(?=\s*[A-Za-z_][\w.]*\s*=)")
"""Commas between the keys of one ``--set``."""
_keys = partial(pairs, named=str, form="key=value, for instance cluster.network.nic_gbps=400")
"""Values by key path, as typed."""


def variations_of(sets: Iterable[str], sweeps: Iterable[str], replan: bool) -> dict[str, Any]:
    """One named variation for each of ``sets``, at every point of the sweeps' grid.

    Args:
        sets: ``key=value`` or ``key=value,key=value`` as typed; a value is YAML, or a number as people write
            it (8k).
        sweeps: ``key=value,value`` as typed.
        replan: whether to search a plan for each run.

    Returns:
        ``variations`` of a scenario; empty where nothing changes.

    Raises:
        InputError: no equals sign, a repeated key or variation, or an unreadable value.
    """
    swept = {key: _values(key, text, f"--sweep {key}") for key, text in _keys(sweeps, "--sweep").items()}
    variations: dict[str, Any] = {}
    for text in list(sets) or [""]:
        variation = _variation(text, swept, replan)
        if repeated := variations.keys() & variation.keys():
            raise InputError(f"{min(repeated)} is given twice", "--set")
        variations |= variation
    return variations


def _variation(text: str, swept: dict[str, Any], replan: bool) -> dict[str, Any]:
    """The variation of one ``--set``, by name; empty where nothing changes."""
    typed = _keys(KEYS.split(text), "--set") if text else {}
    changed = {key: _value(key, value, f"--set {key}") for key, value in typed.items()}
    if both := changed.keys() & swept.keys():
        raise InputError(f"{min(both)} is set and swept", "--sweep")
    if not (changed or swept or replan):
        return {}
    name = ", ".join(f"{key.rpartition('.')[2]} {abbreviated(value)}" for key, value in changed.items())
    if replan:
        name = f"{name}, re-planned" if name else "re-planned"
    return {name or SWEPT: {"set": [changed] if changed else [], "sweep": swept, "replan": replan}}


def plan_fields(texts: Iterable[str]) -> dict[str, Any]:
    """Plan fields as typed after ``--fix``, by name.

    Raises:
        InputError: no equals sign, a field given twice, or a value that cannot be read.
    """
    fields = pairs(texts, "--fix")
    return {name: _value(name, text, f"--fix {name}") for name, text in fields.items()}


def _value(key: str, text: str, where: str) -> Any:
    field = _plan_field(key)
    if field and not text.startswith("["):
        return field_value(field, text, where)
    return _as_written(parse_text(text, where), where)


def _plan_field(key: str) -> str:
    """The plan field that a key path names, where a word, a number or a switch is its value."""
    part, _, name = key.rpartition(".")
    return field_name(name) if part in ("", "plan") and is_typed(field_name(name)) else ""


def _values(key: str, text: str, where: str) -> list[Any]:
    """Values separated by commas outside brackets."""
    if RANGE.fullmatch(text.strip()):
        raise InputError(f"must be values between commas, as 64,128,256; found {shown(text)}", where)
    values = parse_text(f"[{text}]", where)
    if not isinstance(values, list) or not values:
        raise InputError(f"must be values between commas, found {shown(text)}", where)
    if field := _plan_field(key):
        return [value if isinstance(value, list) else field_value(field, value, where) for value in values]
    return [_as_written(value, where) for value in values]


def _as_written(value: Any, where: str) -> Any:
    return whole_number(value, where) if isinstance(value, str) and SHORT.fullmatch(value) else value
