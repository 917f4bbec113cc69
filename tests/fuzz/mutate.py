"""Seeded mutations of data (mappings and lists) and of text."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

ODD: tuple[Any, ...] = (
    *(None, True, False, "", "x", "none", "auto", "8k", "-1", "1e9", "0x10", " ", "on"),
    *(-1, 0, 1, 2, 3, 5, 7, 127, 2**20 + 1, 2**31, 2**53 + 1, 2**63, 2**64, 10**18, 10**30, 10**400),
    *(0.5, -0.0, 1e-9, 1e-24, 1e-300, 1e9, 1e17, 1e300, float("inf"), float("nan")),
    *([], {}, [[]], {"a": 1}, [None], [1, 2, 3], {"": ""}, {"name": "x"}, [[[[[[[[1]]]]]]]]),
    *(
        "a\0b.yaml",
        "../x.yaml",
        "/",
        ".",
        "/dev/null",
        "a/b",
        "~",
        "[red]x[/red]",
        "<b>&\"'",
        "=1+1",
        "ü—\u202e😀",
    ),
    *("x" * 5000, "\x1b[31m", "\ud7ff", "llama3-8b", "h100-sxm", "dgx-h100", "megatron-core"),
)
"""Values that a reader did not expect."""

LIKELY = (
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    80,
    100,
    128,
    1000,
    1024,
    4096,
    65536,
    2**20,
    2**24,
    2**27,
)
"""Whole numbers that pass a check of their type, up to the highest that is allowed."""

SNIPPETS = (
    *(
        "!!int foo",
        "!!float x",
        "!!bool y",
        "!!timestamp 1",
        "!!python/object/apply:os.system [id]",
        "!!set {a}",
    ),
    *(
        "!!binary aGk=",
        "&a [*a]",
        "*nobody",
        "<<: {x: 1}",
        "? [1]\n: 2",
        "\t",
        "---\n",
        "...\n",
        "%YAML 3.0\n",
    ),
    *(
        "\ufeff",
        "\0",
        "\r",
        "{",
        "}",
        "[" * 70,
        "]" * 70,
        "{a: " * 70,
        "'",
        '"',
        "- - - -",
        ": ",
        "#",
        "|",
        ">",
    ),
    *(
        "1" * 5000,
        "9" * 40,
        "\u2028",
        "é",
        "&x",
        "=cmd|' /C calc'!A0",
        ",",
        ",,,",
        ";",
        "NaN",
        "Infinity",
        "1e400",
    ),
)
"""Text that a parser did not expect."""


def paths(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values below the top."""
    if isinstance(data, dict):
        inner = data.items()
    elif isinstance(data, list):
        inner = enumerate(data)
    else:
        return []
    return [found for key, value in inner for found in ((*at, key), *paths(value, (*at, key)))]


def mutated(data: Any, random: Random, times: int) -> Any:
    """A copy of some data with that many places changed."""
    data = copy.deepcopy(data)
    for _ in range(times):
        found = paths(data)
        if not found:
            return data
        *outer, key = random.choice(found)
        holder = data
        for step in outer:
            holder = holder[step]
        holder[key] = _value(holder, key, data, found, random)
        if holder[key] is DELETED:
            del holder[key]
    return data


DELETED = object()


def _value(holder: Any, key: Any, data: Any, found: list[tuple[Any, ...]], random: Random) -> Any:
    old = holder[key]
    choice = random.random()
    if choice < 0.12:
        return DELETED
    if choice < 0.2 and isinstance(holder, dict):
        holder[f"{key}{random.choice('sx_')}"] = old
        return old if random.random() < 0.5 else DELETED
    if choice < 0.3:
        value = data
        for step in random.choice(found):
            value = value[step]
        return copy.deepcopy(value)
    if choice < 0.7 and isinstance(old, int | float) and not isinstance(old, bool):
        return _number(old, random)
    if choice < 0.75:
        return [old]
    return copy.deepcopy(random.choice(ODD))


def _number(old: float, random: Random) -> float:
    if isinstance(old, int) and (random.random() < 0.7 or abs(old) > 10**300):
        return random.choice((*LIKELY, old + 1, old - 1, 2 * old, -old))
    factor = random.choice((0, -1, 0.5, 2, 10, 1e-3, 1e3, 1e-9, 1e9, 1e-18, 1e18))
    return old * factor


def broken(text: str, random: Random) -> str:
    """A text with a part removed, repeated, moved or replaced, or with other line ends or separators."""
    if random.random() < 0.06:
        return random.choice((text.replace("\n", "\r\n"), "\ufeff" + text, text.replace(",", ";"), ""))
    choice, at = random.random(), random.randrange(len(text) + 1)
    end = min(len(text), at + random.choice((1, 2, 5, 20, 100, 1000)))
    if choice < 0.15:
        return text[:at]
    if choice < 0.3:
        return text[:at] + text[end:]
    if choice < 0.4:
        return text[:end] + text[at:]
    if choice < 0.5:
        lines = text.splitlines(keepends=True)
        random.shuffle(lines)
        return "".join(lines)
    return text[:at] + random.choice(SNIPPETS) + text[at if random.random() < 0.5 else end :]


def as_text(data: Any, suffix: str) -> str:
    """Data as a file: JSON, or YAML whose keys are lines of their own; odd values written as they are."""
    if suffix == ".json":
        return json.dumps(data, indent=1, default=str)
    return "\n".join(_yaml(data, 0)) + "\n"


def _yaml(data: Any, indent: int) -> list[str]:
    if not isinstance(data, dict) or not data:
        return [" " * indent + _flow(data)]
    lines = []
    for key, value in data.items():
        start = f"{' ' * indent}{_flow(key)}:"
        if isinstance(value, dict) and value:
            lines += [start, *_yaml(value, indent + 2)]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [start, *(f"{' ' * indent}- {_flow(part)}" for part in value)]
        else:
            lines.append(f"{start} {_flow(value)}")
    return lines


def _flow(value: Any) -> str:
    """JSON is YAML; infinities have a spelling of their own there."""
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and value.replace("-", "a").replace("_", "a").replace(".", "a").isalnum():
        return value if value.isascii() else json.dumps(value)
    if isinstance(value, int) and abs(value) > 10**300:
        return "1" + "0" * 400
    return json.dumps(value, default=str)
