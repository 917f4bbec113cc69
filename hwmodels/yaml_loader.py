"""PyYAML's safe loader as ``hwmodels.parsing`` uses it; imported on first use: catalogues are cached."""

from __future__ import annotations

import re
from typing import Any

import yaml

from hwmodels.bounds import LONGEST_NUMBER, MOST_VALUES, too_long
from hwmodels.errors import InputError, shown


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML with 1.2 floats and booleans, where a duplicate key is an error.

    Plain PyYAML reads ``1e9`` as a string, ``on`` as true and keeps the last of two equal keys.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own protocol
        first: [
            (tag, pattern)
            for tag, pattern in rules
            if not tag.endswith((":float", ":bool", ":int", ":timestamp"))
        ]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def flatten_mapping(self, node: Any) -> None:
        """Merge ``<<`` keys, with a limit on the size of nested merges."""
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES:
            raise InputError(f"line {_line(node)}: merged keys have more than {MOST_VALUES:,} values")


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF")
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9](?:_?[0-9])*$"), list("-+0123456789")
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


IMPLICIT_RESOLVERS: dict[str, list[tuple[str, re.Pattern[str]]]] = Loader.yaml_implicit_resolvers
"""Tags of plain scalars with their patterns, by first character."""


def _line(node: Any) -> int:
    return node.start_mark.line + 1


def _construct_int(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    if len(text) > LONGEST_NUMBER:
        raise InputError(f"line {_line(node)}: {too_long(text)}")
    return int(text, 10)


def _construct_mapping(loader: Any, node: Any) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool):
            raise InputError(f"line {_line(key_node)}: a key must be a plain name, found {shown(key)}")
        if key in mapping:
            raise InputError(f"line {_line(key_node)}: key {shown(key)} is given twice")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
