"""PyYAML's safe loader as ``core.parsing`` uses it; imported on first use: catalogues are cached."""

from __future__ import annotations

import re
from typing import Any

import yaml

from core.bounds import LONGEST_NUMBER, too_long
from core.errors import InputError, shown

MERGE = "tag:yaml.org,2002:merge"


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
        """Put the pairs of mappings under ``<<`` first; a pair that is merged many times counts once.

        PyYAML's own merge repeats such pairs before 6.0.4, and tells keys apart by identity from then on.
        """
        pairs, node.value = node.value, [pair for pair in node.value if pair[0].tag != MERGE]
        merged = {}
        for source in (source for key, value in pairs if key.tag == MERGE for source in _sources(value)):
            if not isinstance(source, yaml.MappingNode):
                raise InputError(f"line {_line(source)}: << needs a mapping or a list of mappings")
            self.flatten_mapping(source)
            merged |= {id(key): (key, value) for key, value in source.value}
        node.value = list((merged | {id(key): (key, value) for key, value in node.value}).values())


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


def _sources(value: Any) -> list[Any]:
    """What a ``<<`` names: one mapping, or a list of them."""
    return value.value if isinstance(value, yaml.SequenceNode) else [value]


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
Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)
