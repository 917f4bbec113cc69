"""Sources of the numbers of a definition: a file states ``{value, source, kind}`` for each number."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import ModelWrapValidatorHandler, PrivateAttr, model_validator

from core.loading import Strict

Kind = Literal["assumed", "derived", "read", "measured"]
"""measured: by the source; read: stated by the source, code or document; derived: computed from what the
source states; assumed: none of these, and the source says why the value is plausible."""

USER = "user"
"""The source of a bare number."""


BY_THE_USER: tuple[str, Kind] = (USER, "assumed")


class Origin(Strict):
    """A number of a definition and where it comes from."""

    value: Any
    source: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}: {self.source}"


class Sourced(Strict):
    """Base of definitions whose numbers name their sources.

    A number is bare (an assumption of the user), or a mapping of ``value``, ``source`` and ``kind``. A
    mapping of several numbers may state ``source`` and ``kind`` once as the default of its numbers.
    """

    UNSOURCED: ClassVar[frozenset[str]] = frozenset()
    """Keys at the top whose numbers need no source."""

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _take_origins(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        plain, origins = {}, {}
        for key, value in data.items():
            if key in cls.UNSOURCED:
                plain[key] = value
            else:
                plain[key], nested = _split(value, str(key), None)
                origins |= nested
        instance = handler(plain)
        instance._origins.update(origins)
        return instance

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Origin of each number that the definition states, by key path; assumed ones first."""
        kinds = get_args(Kind)
        ordered = sorted(self._origins.items(), key=lambda item: kinds.index(item[1].kind))
        return MappingProxyType(dict(ordered))


def _split(value: Any, path: str, around: tuple[str, Kind] | None) -> tuple[Any, dict[str, Origin]]:
    """Separate a value from the origins of its numbers; ``around`` is the enclosing source and kind."""
    if isinstance(value, Mapping) and "value" in value:
        return _number(value, path)
    if isinstance(value, Mapping):
        if isinstance(value.get("source"), str) and isinstance(value.get("kind"), str):
            around = (value["source"], _kind(value["kind"], path))
            value = {key: inner for key, inner in value.items() if key not in ("source", "kind")}
        parts = {key: _split(inner, f"{path}.{key}", around) for key, inner in value.items()}
        origins = {name: origin for _, nested in parts.values() for name, origin in nested.items()}
        return {key: plain for key, (plain, _) in parts.items()}, origins
    if isinstance(value, int | float) and not isinstance(value, bool):
        stated = around or BY_THE_USER
        return value, {path: Origin(value=value, source=stated[0], kind=stated[1])}
    return value, {}


def _number(number: Mapping[str, Any], path: str) -> tuple[Any, dict[str, Origin]]:
    """A value with an explicit source and kind; a mapping of numbers has one origin per number."""
    for name in number:
        if name not in ("value", "source", "kind"):
            raise ValueError(f"{path}: unknown key {name!r}; a number has value, source and kind")
    for name in ("source", "kind"):
        if not isinstance(number.get(name), str) or not number[name]:
            raise ValueError(f"{path}: key {name!r} is missing; a number has value, source and kind")
    value, source, kind = number["value"], number["source"], _kind(number["kind"], path)
    if isinstance(value, Mapping):
        return _split(value, path, (source, kind))
    return value, {path: Origin(value=value, source=source, kind=kind)}


def _kind(name: str, path: str) -> Kind:
    for kind in get_args(Kind):
        if name == kind:
            return kind
    raise ValueError(f"{path}.kind: must be {', '.join(get_args(Kind))}, found {name!r}")
