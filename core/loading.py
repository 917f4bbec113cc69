"""Strict loading of parsed files into pydantic models, and catalogues of named definitions.

Every error message has the same form: file, key path, value found, values allowed, nearest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator

from core.absent import absent
from core.cache import read_folder
from core.errors import InputError, UnknownNameError, plain_problem, shown, suggestion
from core.file_kinds import other_kind
from core.parsing import exists, parse_text, read_mapping, read_text

__all__ = [
    "SUFFIXES",
    "Catalogue",
    "Strict",
    "Versioned",
    "build",
    "exists",
    "looks_like_path",
    "parse_text",
    "read_mapping",
    "read_text",
]

SUFFIXES = (".yaml", ".yml", ".json")
HUB = re.compile(r"[\w-]+/[\w.-]*[\w-]")
"""Names of Hugging Face: an owner and a repository."""


class Strict(BaseModel):
    """Base of every definition read from a file: frozen, no unknown keys, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields only: cached properties hold large tables."""
        generic = type(self).__pydantic_generic_metadata__
        made_of = (generic["origin"] or type(self), generic["args"])
        names = type(self).model_fields
        values = {name: value for name, value in self.__dict__.items() if name in names}
        return _empty, made_of, {**self.__getstate__(), "__dict__": values}


def _empty(origin: type[Strict], arguments: tuple[Any, ...]) -> Strict:
    """An instance without values; needed because a generic class with arguments cannot be pickled by name."""
    concrete = origin[arguments] if arguments else origin  # type: ignore[index]
    return concrete.__new__(concrete)


FORMAT = 1
"""Version of files where their definition states no other."""


class Versioned(Strict):
    """Base of definitions in files that Meshwright writes, and that another version may read.

    The default of `format` is the version that is read; a definition increases it when older files become
    unreadable.
    """

    format: int = FORMAT
    """Format version of the file; optional in hand-written files."""

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, data: object) -> object:
        reads = cls.model_fields["format"].default
        version = data.get("format", reads) if isinstance(data, Mapping) else reads
        if version != reads:
            raise ValueError(
                f"was written by another version of Meshwright (format {version!r}, this one reads {reads})"
                "; re-create it with `meshwright calibrate`"
            )
        return data


MOST_PROBLEMS = 12
"""Maximum number of listed errors per file."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def build(model: type[ModelT], data: Any, where: str, folder: Path | None = None) -> ModelT:
    """Check data against a pydantic model.

    Args:
        model: the definition to build.
        data: parsed data.
        where: file (and key path) to name in errors.
        folder: of the file; validators find it in their context, to resolve files that a file names.

    Raises:
        InputError: all problems at once, one line each.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"a mapping of keys to values is needed, found {shown(data)}", where)
    try:
        return model.model_validate(data, context=None if folder is None else {"folder": folder})
    except ValidationError as error:
        if other := other_kind(data, _fields_at(model, ())):
            raise InputError(other.replace("FILE", where), where) from None
        lines = [_describe(model, problem) for problem in _merged(error.errors())]
        if len(lines) > MOST_PROBLEMS:
            lines[MOST_PROBLEMS:] = [f"and {len(lines) - MOST_PROBLEMS} more"]
        joined = lines[0] if len(lines) == 1 else "\n  " + "\n  ".join(lines)
        raise InputError(joined, where) from None


NUMBERS_OR_TEXT = ("float", "int", "str")
"""What pydantic adds to the place of a value that may be one of several types."""


def _merged(problems: Sequence[Any]) -> list[Any]:
    """Problems, of a value that may be of several simple types only the first."""
    merged: dict[Any, Any] = {}
    for problem in problems:
        place = problem["loc"]
        if place and place[-1] in NUMBERS_OR_TEXT:
            merged.setdefault(place[:-1], {**problem, "loc": place[:-1]})
        else:
            merged[place, problem["type"]] = problem
    return list(merged.values())


def _describe(model: type[BaseModel], problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        parent, name = ".".join(str(p) for p in problem["loc"][:-1]), str(problem["loc"][-1])
        fields = _fields_at(model, problem["loc"][:-1])
        return f"{parent + ': ' if parent else ''}unknown key {name!r}{suggestion(name, fields)}"
    if problem["type"] == "missing":
        return f"key {path!r} is missing"
    if problem["type"] == "union_tag_invalid":
        tag, tags = problem["ctx"]["tag"], re.findall(r"'([^']*)'", problem["ctx"]["expected_tags"])
        key = problem["ctx"]["discriminator"].strip("'")
        return f"{path + '.' if path else ''}{key}: unknown {key} {shown(tag)}{suggestion(tag, tags)}"
    if problem["type"] == "union_tag_not_found":
        key = problem["ctx"]["discriminator"].strip("'")
        return f"{path + ': ' if path else ''}key {key!r} is missing{_tags_at(model, problem['loc'], key)}"
    message = plain_problem(problem["msg"])
    if path == "":
        return message
    extra = ""
    if "number" in message and isinstance(problem["input"], str):
        extra = plain_number(problem["input"])
    if isinstance(problem["input"], str) and problem["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", problem["ctx"]["expected"])
        extra = (
            suggestion(problem["input"], allowed)
            if "did you mean" in suggestion(problem["input"], allowed)
            else ""
        )
    return f"{path}: {message}, found {shown(problem['input'])}{extra}"


SCALES = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "ms": 1e-3, "us": 1e-6, "s": 1.0, "t": 1e12, "b": 1e9}
"""Values of suffixes that flags take and files do not."""


def plain_number(text: str) -> str:
    """What a file states instead of a number with a suffix; empty where that is not clear."""
    form = re.fullmatch(r"([0-9][0-9_]{0,14}(?:\.[0-9]{1,9})?) ?([a-zA-Z]{1,2})", text.strip())
    scale = SCALES.get(form[2].lower()) if form else None
    return (
        "" if form is None or scale is None else f"; files state plain numbers: {float(form[1]) * scale:.12g}"
    )


def _fields_at(model: Any, loc: tuple[Any, ...]) -> list[str]:
    return [info.alias or name for m in _models_at(model, loc) for name, info in m.model_fields.items()]


def _tags_at(model: Any, loc: tuple[Any, ...], key: str) -> str:
    """The values of a key that tells the models at a place apart: "; allowed: a, b"."""
    kinds = [m.model_fields[key].annotation for m in _models_at(model, loc) if key in m.model_fields]
    tags = dict.fromkeys(str(tag) for kind in kinds for tag in get_args(kind))
    return f"; allowed: {', '.join(tags)}" if tags else ""


def _models_at(model: Any, loc: tuple[Any, ...]) -> list[type[BaseModel]]:
    for part in loc:
        candidates = [m for m in _models_in(model) if part in m.model_fields]
        if candidates:
            model = candidates[0].model_fields[part].annotation
        elif isinstance(part, int) or get_origin(model) in (dict, Mapping):
            model = get_args(model)[-1] if get_args(model) else model
    return _models_in(model)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, list, dict, tuple) or get_args(annotation):
        return [m for arg in get_args(annotation) for m in _models_in(arg)]
    return []


class Catalogue(Generic[ModelT]):
    """Named definitions in a folder of YAML files.

    A file holds one definition (with its ``name``), or several under ``entries``. A reference is
    a catalogue name, an alias of one (``aliases`` of the definition, where its model has them), a path
    to a file of the same form, or the definition itself as a mapping. Case does not matter in names,
    and ``_`` and blanks stand for ``-``.

    Args:
        kind: kind of definition in messages ("device").
        folder: folder of the YAML files.
        model: the pydantic model of one definition; must have a ``name`` field.
    """

    def __init__(self, kind: str, folder: Path, model: type[ModelT]) -> None:
        self.kind, self.folder, self.model = kind, folder, model
        self._built: dict[str, ModelT] = {}

    @cached_property
    def _raw(self) -> dict[str, tuple[dict[str, Any], str]]:
        entries: dict[str, tuple[dict[str, Any], str]] = {}
        for name, data in read_folder(self.folder).items():
            path = self.folder / name
            for index, entry in enumerate(data.get("entries", [data])):
                where = f"{path}: entries.{index}" if "entries" in data else str(path)
                if entry["name"] in entries:
                    raise InputError(f"the {self.kind} {entry['name']!r} is defined twice", where)
                entries[entry["name"]] = (entry, where)
        return entries

    @cached_property
    def _aliases(self) -> dict[str, str]:
        names = {_plain(name): name for name in self._raw}
        for name, (entry, where) in self._raw.items():
            for alias in entry.get("aliases", ()):
                if names.setdefault(_plain(alias), name) != name:
                    other = names[_plain(alias)]
                    raise InputError(f"aliases: {alias!r} also means the {self.kind} {other!r}", where)
        return names

    def names(self) -> list[str]:
        """All names, sorted; aliases are left out."""
        return sorted(self._raw)

    def resolve(self, name: str) -> str | None:
        """Return the catalogue name that a name or an alias means, or none."""
        return name if name in self._raw else self._aliases.get(_plain(name))

    def definition(self, name: str) -> Mapping[str, Any]:
        """The mapping that a catalogue name stands for, as its file states it; not to be changed."""
        return self._raw[name][0]

    def __iter__(self) -> Iterator[ModelT]:
        return (self.get(name) for name in self.names())

    def find(self, value: object, info: ValidationInfo) -> object:
        """The definition that a name, path or mapping means, for validators of fields.

        A path is relative to the folder of the validated file. Other values are returned as they are.

        Raises:
            ValueError: as ``get``, for pydantic to place.
        """
        if not isinstance(value, str | Mapping):
            return value
        folder = (info.context or {}).get("folder")
        if folder is not None and isinstance(value, str) and looks_like_path(value):
            value = str(Path(folder) / value)
        try:
            return self.get(value)
        except InputError as error:
            raise ValueError(str(error)) from None

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
        resolved = self.resolve(name)
        if resolved is not None:
            if resolved not in self._built:
                entry, source = self._raw[resolved]
                self._built[resolved] = build(self.model, entry, source, self.folder)
            return self._built[resolved]
        if isinstance(reference, Path) or looks_like_path(name):
            path = Path(name)
            refuse_hub_name(self.kind, name, path, where)
            return build(self.model, read_mapping(path), str(path), path.parent)
        raise UnknownNameError(self.kind, name, sorted({*self.names(), *self._aliases}), where)


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().lower())


def refuse_hub_name(kind: str, name: str, path: Path, where: str) -> None:
    """Say what a name of Hugging Face that the catalogue lacks needs.

    Raises:
        InputError: a model's name that is no file.
    """
    if kind == "model" and HUB.fullmatch(name) and not name.endswith(SUFFIXES) and not path.parent.exists():
        words = absent(kind, name) or f"give its config.json (hf download {name} config.json)"
        raise InputError(f"{shown(name)} is not in the catalogue; {words}", where)


def looks_like_path(reference: str) -> bool:
    """Whether a reference is meant as a file rather than as a catalogue name."""
    return "/" in reference or "\\" in reference or reference.endswith(SUFFIXES)
