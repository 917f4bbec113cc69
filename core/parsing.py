"""Strict, bounded parsing of YAML and JSON text, used for all input files.

YAML is read as version 1.2 reads numbers and booleans, a duplicate key is an error, nothing is executed, and
the result holds JSON types only. Text, depth, values (aliases expanded) and numbers have bounds, so that no
file exhausts memory or the stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from difflib import get_close_matches
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from core.bounds import (
    DEEPEST,
    LARGEST,
    LONGEST_NUMBER,
    MOST_BYTES,
    MOST_VALUES,
    SMALLEST,
    UNSCANNED,
    too_long,
)
from core.errors import InputError, located, shown, shown_path

MOST_NAMES = 1000
"""Names of a folder that are compared with a missing file's."""


def parse_text(text: str, where: str) -> Any:
    """Parse YAML (a superset of JSON) strictly.

    Raises:
        InputError: broken syntax, a duplicate key, a value that its tag does not allow, or out of bounds;
            with file and line.
    """
    import yaml

    from core.yaml_loader import Loader

    try:
        _check_nesting(text)
        data = yaml.load(text, Loader=Loader)
    except InputError as error:
        raise InputError(error.problem, where) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{line}not valid YAML ({problem})", where) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        # PyYAML's constructors raise these for values that do not fit an explicit tag: `!!int foo`.
        tags = sorted(set(re.findall(r"!!\w+", text)))
        named = f"a value does not fit its tag, one of {', '.join(tags[:6])}" if tags else str(error)[:60]
        raise InputError(f"not valid YAML ({named})", where) from None
    check_plain(data, where)
    return data


def parse_json(text: str, where: str, bounded: bool = True) -> Any:
    """Parse JSON strictly.

    Args:
        text: of the file.
        where: to name in errors.
        bounded: whether numbers beyond `LARGEST` are refused.

    Raises:
        InputError: broken or cut off, a duplicate key, or out of bounds; with file and line.
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique_pairs, parse_int=_json_int)
    except json.JSONDecodeError as error:
        raise InputError(
            f"line {error.lineno}: not valid JSON, perhaps cut off ({error.msg})", where
        ) from None
    except InputError as error:
        raise InputError(error.problem, where) from None
    except RecursionError:
        raise InputError(_too_deep(), where) from None
    check_plain(data, where, bounded)
    return data


def no_such_file(path: Path) -> InputError:
    """The error for a missing file, with the nearest name of its folder."""
    if re.match(r"https?:/", str(path)):
        address = shown_path(path).replace(":/", "://", 1)
        return InputError("is an address, a file is needed; download it first", address)
    try:
        names = [file.name for file in islice(path.parent.iterdir(), MOST_NAMES)]
    except (OSError, ValueError):
        names = []
    nearest = get_close_matches(path.name, names, n=1, cutoff=0.8)
    return InputError(f"no such file{f'; did you mean {nearest[0]!r}?' if nearest else ''}", shown_path(path))


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Read a text file.

    Raises:
        InputError: missing, a folder, not permitted, not UTF-8 or larger than ``most_bytes``.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise InputError(
                f"is larger than {most_bytes / 2**20:.0f} MiB, which no such file needs", str(path)
            )
        # Universal newlines, as in text mode.
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise no_such_file(path) from None
    except IsADirectoryError:
        raise InputError("is a folder, a file is needed", shown_path(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", shown_path(path)) from None
    except ValueError as error:  # a NUL character in the path
        raise InputError(f"cannot be read ({error})", shown_path(path)) from None


def read_mapping(path: Path, bounded: bool = True) -> dict[str, Any]:
    """Read a YAML or JSON file whose top is a mapping.

    Args:
        path: the file.
        bounded: whether a JSON file's numbers beyond `LARGEST` are refused; not where another program wrote
            keys that nothing reads.

    Raises:
        InputError: unreadable, empty, broken, out of bounds, or its top is something else.
    """
    text = read_text(path)
    where = str(path)
    data = parse_json(text, where, bounded) if path.suffix == ".json" else parse_text(text, where)
    if not isinstance(data, dict):
        content = "an empty file" if data is None else f"a {type(data).__name__}"
        raise InputError(f"a mapping of keys to values is needed, found {content}", str(path))
    return data


def check_plain(data: Any, where: str, bounded: bool = True) -> None:
    """Refuse data that is too deep or too large, other types than JSON's, and numbers out of range.

    Args:
        data: parsed.
        where: to name in errors.
        bounded: whether numbers have a range.

    Raises:
        InputError: with the key path.
    """
    with located(where):
        _expanded(data, (), {}, bounded)


def _expanded(value: Any, path: tuple[Hashable, ...], sizes: dict[int, int], bounded: bool) -> int:
    """Number of values in a structure; shared values count once per reference."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int | float):
        if bounded:
            _check_number(value, path)
        return 1
    if not isinstance(value, dict | list):
        raise InputError(
            f"{_at(path)}a {type(value).__name__} is not allowed as a value; write it as text in quotes"
        )
    if id(value) in sizes:
        return sizes[id(value)]
    if len(path) >= DEEPEST:
        raise InputError(_too_deep())
    items = value.items() if isinstance(value, dict) else enumerate(value)
    count = 1 + sum(_expanded(part, (*path, key), sizes, bounded) for key, part in items)
    if count > MOST_VALUES:
        raise InputError(f"{_at(path)}more than {MOST_VALUES:,} values, aliases expanded")
    sizes[id(value)] = count
    return count


def _check_number(value: float, path: tuple[Hashable, ...]) -> None:
    size = abs(value)
    if not (size == 0 or SMALLEST <= size <= LARGEST) and size == size and size != float("inf"):
        raise InputError(
            f"{_at(path)}a number from {SMALLEST:g} to {LARGEST:g} in size is needed, found {shown(value)}"
        )


def _at(path: tuple[Hashable, ...]) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


def _check_nesting(text: str) -> None:
    """Refuse deep nesting before libyaml's composer, which recurses in C, meets it.

    libyaml's scanner itself is quadratic in open brackets, so thousands of them are refused unscanned.
    """
    brackets = re.findall(r"[\[{}\]]", text)
    indented = max(map(len, re.findall(r"^ +", text, re.MULTILINE)), default=0)
    dashes = max(map(len, re.findall(r"(?:[-?] +)+", text)), default=0)
    opened = max(accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)
    if max(opened, dashes) > UNSCANNED:
        raise InputError(_too_deep())
    if max(opened, dashes, indented) < DEEPEST:
        return
    import yaml

    from core.yaml_loader import Loader

    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise InputError(f"line {event.start_mark.line + 1}: {_too_deep()}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _too_deep() -> str:
    return f"mappings and lists are nested deeper than {DEEPEST}"


def _json_int(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise InputError(too_long(text))
    return int(text)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [k for k, _ in pairs]
        seen: set[str] = set()
        twice = next(k for k in keys if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise InputError(f"key {shown(twice)} is given twice")
    return mapping


def exists(path: Path) -> bool:
    """Whether a path leads to a file or a folder; false for paths that no file system accepts."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
