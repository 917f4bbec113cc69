"""Strict loading of YAML and JSON into pydantic models, and catalogues of named definitions.

Every file that Meshwright reads comes through here, so every bad file gives the same kind of
message: file, key path, what was found, what is allowed, the nearest valid name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from hwmodels.errors import InputError, UnknownNameError, suggestion

SUFFIXES = (".yaml", ".yml", ".json")


class Strict(BaseModel):
    """Base of every definition read from a file: frozen, no unknown keys, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


FORMAT = 1
"""Of the files that `meshwright calibrate` writes; it grows when older ones can no longer be read."""


class Versioned(Strict):
    """Base of definitions in files that Meshwright writes itself, and may read in another version."""

    format: int = FORMAT
    """Of the file; what people write needs none."""

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, data: object) -> object:
        found = data.get("format", FORMAT) if isinstance(data, Mapping) else FORMAT
        if found != FORMAT:
            raise ValueError(
                f"was written by another version of Meshwright (format {found!r}, this one reads {FORMAT}); "
                "make it anew with `meshwright calibrate`"
            )
        return data


MOST_PROBLEMS = 12
"""Of one file, that are listed."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
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


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9](?:_?[0-9])*$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def _construct_int(loader: Any, node: Any) -> int:
    return int(loader.construct_scalar(node).replace("_", ""), 10)


def _construct_mapping(loader: Any, node: Any) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, (str, int, float, bool)):
            raise InputError(f"line {line}: a key must be a plain name, found {key!r}")
        if key in mapping:
            raise InputError(f"line {line}: key {key!r} is given twice")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def parse_text(text: str, where: str) -> Any:
    """Parse YAML (a superset of JSON) strictly.

    Raises:
        InputError: broken syntax or a duplicate key, with file and line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except InputError as error:
        raise InputError(error.problem, where) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{line}not valid YAML ({problem})", where) from None


def read_text(path: Path) -> str:
    """Read a text file, or say why it cannot be read.

    Raises:
        InputError: missing, a folder, not permitted or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError("no such file", str(path)) from None
    except IsADirectoryError:
        raise InputError("is a folder, a file is needed", str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", str(path)) from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file whose top is a mapping.

    Raises:
        InputError: unreadable, empty, broken, or its top is something else.
    """
    text = read_text(path)
    if path.suffix == ".json":
        try:
            data = json.loads(text, object_pairs_hook=_unique_pairs)
        except json.JSONDecodeError as error:
            raise InputError(
                f"line {error.lineno}: not valid JSON, perhaps cut off ({error.msg})", str(path)
            ) from None
        except InputError as error:
            raise InputError(error.problem, str(path)) from None
    else:
        data = parse_text(text, str(path))
    if not isinstance(data, dict):
        found = "an empty file" if data is None else f"a {type(data).__name__}"
        raise InputError(f"a mapping of keys to values is needed, found {found}", str(path))
    return data


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [k for k, _ in pairs]
        twice = next(k for k in keys if keys.count(k) > 1)
        raise InputError(f"key {twice!r} is given twice")
    return mapping


def build(model: type[ModelT], data: Any, where: str, folder: Path | None = None) -> ModelT:
    """Check data against a pydantic model.

    Args:
        model: the definition to build.
        data: what was parsed.
        where: file (and key path) to name in errors.
        folder: of the file; validators find it in their context, to resolve files that a file names.

    Raises:
        InputError: all problems at once, one line each.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"a mapping of keys to values is needed, found {_shown(data)}", where)
    try:
        return model.model_validate(data, context=None if folder is None else {"folder": folder})
    except ValidationError as error:
        lines = [_describe(model, problem) for problem in error.errors()]
        if len(lines) > MOST_PROBLEMS:
            lines[MOST_PROBLEMS:] = [f"and {len(lines) - MOST_PROBLEMS} more"]
        joined = lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)
        raise InputError(joined, where) from None


def _describe(model: type[BaseModel], problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        parent, name = ".".join(str(p) for p in problem["loc"][:-1]), str(problem["loc"][-1])
        fields = _fields_at(model, problem["loc"][:-1])
        return f"{parent + ': ' if parent else ''}unknown key {name!r}{suggestion(name, fields)}"
    if problem["type"] == "missing":
        return f"key {path!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    if path == "":
        return message
    extra = ""
    if isinstance(problem["input"], str) and problem["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        extra = (
            suggestion(problem["input"], allowed)
            if "did you mean" in suggestion(problem["input"], allowed)
            else ""
        )
    return f"{path}: {message}, found {_shown(problem['input'])}{extra}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(model: Any, loc: tuple[Any, ...]) -> list[str]:
    for part in loc:
        candidates = [m for m in _models_in(model) if part in m.model_fields]
        if candidates:
            model = candidates[0].model_fields[part].annotation
        elif isinstance(part, int) or get_origin(model) in (dict, Mapping):
            model = get_args(model)[-1] if get_args(model) else model
    found = _models_in(model)
    return [name for m in found for name in m.model_fields]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, list, dict, tuple) or get_args(annotation):
        return [m for arg in get_args(annotation) for m in _models_in(arg)]
    return []


class Catalogue(Generic[ModelT]):
    """Named definitions in a folder of YAML files.

    A file holds one definition (with its ``name``), or many under ``entries``. A reference is
    a catalogue name, a path to a file of the same form, or the definition itself as a mapping.

    Args:
        kind: what the definitions are, for messages ("device").
        folder: where the YAML files lie.
        model: the pydantic model of one definition; must have a ``name`` field.
    """

    def __init__(self, kind: str, folder: Path, model: type[ModelT]) -> None:
        self.kind, self.folder, self.model = kind, folder, model
        self._built: dict[str, ModelT] = {}

    @cached_property
    def _raw(self) -> dict[str, tuple[dict[str, Any], str]]:
        found: dict[str, tuple[dict[str, Any], str]] = {}
        for path in sorted(self.folder.glob("*.yaml")):
            data = read_mapping(path)
            for index, entry in enumerate(data.get("entries", [data])):
                where = f"{path}: entries.{index}" if "entries" in data else str(path)
                if entry["name"] in found:
                    raise InputError(f"the {self.kind} {entry['name']!r} is defined twice", where)
                found[entry["name"]] = (entry, where)
        return found

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._raw)

    def __iter__(self) -> Iterator[ModelT]:
        return (self.get(name) for name in self.names())

    def get(self, reference: str | Path | Mapping[str, Any], where: str = "") -> ModelT:
        """Return the definition that a reference means.

        Raises:
            UnknownNameError: no such name (nearest one offered).
            InputError: the file or the definition is wrong.
        """
        if isinstance(reference, Mapping):
            return build(self.model, reference, where or f"inline {self.kind}")
        name = str(reference)
        if name in self._built:
            return self._built[name]
        if name in self._raw:
            entry, source = self._raw[name]
            self._built[name] = build(self.model, entry, source, self.folder)
            return self._built[name]
        if isinstance(reference, Path) or looks_like_path(name):
            path = Path(name)
            return build(self.model, read_mapping(path), str(path), path.parent)
        raise UnknownNameError(self.kind, name, self.names(), where)


def looks_like_path(reference: str) -> bool:
    """Whether a reference is meant as a file rather than as a catalogue name."""
    return "/" in reference or "\\" in reference or reference.endswith(SUFFIXES)
