"""Constraints of a search: fields fixed at a value, and upper limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from core.errors import InputError, UnknownNameError, shown
from core.loading import build
from simulator.levers import LEVERS, Levers
from simulator.plan import FIXABLE, Choice, Plan, field_name
from simulator.schedules import get_schedule

if TYPE_CHECKING:
    from simulator.scenario import Search

Value = int | bool | str | tuple[str, ...] | None
"""Type of a plan's field."""

FOLLOWING = {
    "first_stage_layers": "the layers and the pipeline",
    "last_stage_layers": "the layers and the pipeline",
}
"""Fields that a search derives from other fields, and from which."""


Schedules = Literal["offered", "all"]
"""Pipeline schedules of a search: those with a closed form that the release offers, or all."""


class Keeps(Protocol):
    """What a search may use besides fixed values and limits (``measured_runs.RunEvidence``)."""

    @property
    def shortest_s(self) -> float:
        """The shortest step that a plan may promise, s."""
        ...

    def proves(self, name: str, value: Value) -> bool:
        """Whether a field may have a value."""
        ...

    def together(self, words: Collection[str]) -> bool:
        """Whether one plan may use mechanisms together."""
        ...


@dataclass(frozen=True)
class Constraints:
    """Fields of the plan with a fixed value (``fixed``) or a maximum (``limits``).

    ``keeps``, where there is one, says which values and which mechanisms together a search may use
    (``measured_runs.proven``); fixed values are the user's. ``schedules`` widens the search to all
    pipeline schedules.
    """

    fixed: Mapping[str, Value] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    keeps: Keeps | None = None
    schedules: Schedules = "offered"

    @classmethod
    def of(
        cls,
        fix: Mapping[str, object] | None = None,
        limit: Mapping[str, object] | None = None,
        where: str = "",
    ) -> Constraints:
        """Check names and values, which may be text as typed or values as read from a file.

        Raises:
            InputError: a value that the field cannot take, or a fixed value above its own limit.
            UnknownNameError: no such field, or no such word for it.
        """
        fixed = {name: _value(name, raw, _at(where, "fix", name)) for name, raw in (fix or {}).items()}
        limits = {name: _limit(name, raw, _at(where, "limit", name)) for name, raw in (limit or {}).items()}
        if fixed.get("recompute_modules"):
            # Who names the modules wants them repeated.
            fixed.setdefault("recompute", "selective")
        for name, largest in limits.items():
            if isinstance(value := fixed.get(name), int) and value > largest:
                raise InputError(f"{name} is fixed at {fixed[name]} and limited to {largest}", where)
        return cls(fixed, limits)

    @classmethod
    def of_search(
        cls,
        search: Search,
        where: str,
        fix: Mapping[str, object] | None = None,
        limit: Mapping[str, object] | None = None,
    ) -> Constraints:
        """Those of a scenario's search, overridden by others.

        Args:
            search: of the scenario.
            where: name of the scenario in errors.
            fix, limit: as typed, or as arguments of the API.

        Raises:
            InputError: as ``of``.
        """
        return cls.of(search.fix, search.limit, f"{where}: search").overridden(cls.of(fix, limit))

    @classmethod
    def parse(cls, fix: Iterable[str] = (), limit: Iterable[str] = ()) -> Constraints:
        """Read constraints as they are typed: ``tensor=8``.

        Raises:
            InputError: as ``of``; also no equals sign, or a field given twice.
        """
        return cls.of(pairs(fix, "--fix"), pairs(limit, "--limit"), "")

    def describe(self) -> str:
        """The constraints in words, empty where there are none."""
        words = [f"{name}={value}" for name, value in self.fixed.items()]
        return ", ".join([*words, *(f"{name} up to {limit}" for name, limit in self.limits.items())])

    def overridden(self, by: Constraints) -> Constraints:
        """Both constraints; ``by`` overrides ``self`` where both hold or limit a field.

        Raises:
            InputError: a value that stays fixed is above a limit.
        """
        fixed, limits = {**self.fixed, **by.fixed}, {**self.limits, **by.limits}
        schedules: Schedules = "all" if "all" in (self.schedules, by.schedules) else "offered"
        return replace(Constraints.of(fixed, limits), keeps=by.keeps or self.keeps, schedules=schedules)

    def without(self, name: str) -> Constraints:
        """The constraints without those on one field."""
        fixed = {key: value for key, value in self.fixed.items() if key != name}
        limits = {key: value for key, value in self.limits.items() if key != name}
        return replace(self, fixed=fixed, limits=limits)

    def allows(self, name: str, value: Value) -> bool:
        """Whether a field may have a value."""
        if name in self.fixed:
            return value == self.fixed[name]
        if self.keeps is not None and not self.keeps.proves(name, value):
            return False
        return name not in self.limits or (isinstance(value, int) and value <= self.limits[name])


def asked_schedules(word: str) -> Schedules:
    """The pipeline schedules of a search, by word.

    Raises:
        UnknownNameError: no such word.
    """
    words: dict[str, Schedules] = {name: name for name in get_args(Schedules)}
    if word not in words:
        raise UnknownNameError("schedules", word, words, "--schedules")
    return words[word]


def _at(where: str, option: str, name: str) -> str:
    return f"{where}: {option}.{name}" if where else f"--{option} {name}"


def pairs(
    texts: Iterable[str],
    option: str,
    named: Callable[[str], str] = field_name,
    form: str = "field=value, for instance tensor=8",
) -> dict[str, str]:
    """Read values by name as typed after an option (``tensor=8``).

    Args:
        texts: text as typed.
        option: name of the option, for errors.
        named: maps a typed name to the full name; by default of a plan field.
        form: allowed form, for errors.

    Raises:
        InputError: no equals sign, or a name given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = named(name)
        if not equals or not name or not value:
            raise InputError(f"must be {form}; found {shown(text)}", option)
        if name in values:
            raise InputError(f"{name} is given twice", option)
        values[name] = value
    return values


def _check_name(name: str, where: str) -> None:
    if name not in FIXABLE:
        raise UnknownNameError("plan field", name, FIXABLE, where)
    if name in FOLLOWING:
        raise InputError(f"a search derives {name} from {FOLLOWING[name]}", where)


def _value(name: str, raw: object, where: str) -> Value:
    """One value of a field that a search may fix."""
    _check_name(name, where)
    return field_value(name, raw, where)


def is_typed(name: str) -> bool:
    """Whether a plan field's value is one word, number or switch, or a lever's."""
    return name in LEVERS or name == "schedule" or name in Choice or _kind(name) in (bool, int)


def _kind(name: str) -> object:
    return Plan.model_fields[name].annotation if name in Plan.model_fields else None


def field_value(name: str, raw: object, where: str) -> Value:
    """The value of a plan field (``is_typed``), from text as people write it or already of its type.

    Raises:
        InputError: not a value of the field.
        UnknownNameError: no such word; the nearest is offered.
    """
    if name in LEVERS:
        return _lever(name, raw, where)
    if name == "schedule":
        return get_schedule(str(raw), where).name
    if name in Choice:
        if raw not in Choice[name]:
            raise UnknownNameError(name, str(raw), Choice[name], where)
        return str(raw)
    if _kind(name) is bool:
        return _switch(raw, where)
    return _whole(name, raw, where)


def _lever(name: str, raw: object, where: str) -> Value:
    """The value of a lever: a switch, a word, a number of bytes, or modules joined by ``+``."""
    words: dict[object, object] = {"true": True, "false": False, "on": True, "off": False}
    value = words.get(raw.lower(), int(raw) if raw.isdigit() else raw) if isinstance(raw, str) else raw
    return getattr(build(Levers, {name: value}, where), name)


def _switch(raw: object, where: str) -> bool:
    words = {"true": True, "false": False, "on": True, "off": False}
    if isinstance(raw, bool):
        return raw
    if str(raw).lower() not in words:
        raise InputError(f"must be true or false, found {shown(raw)}", where)
    return words[str(raw).lower()]


def _whole(name: str, raw: object, where: str) -> int:
    low, high = _range(name)
    allowed = f"a whole number from {low} to {high}" if high is not None else f"a whole number, {low} or more"
    try:
        value = int(raw) if isinstance(raw, str) else raw
    except ValueError:
        raise InputError(f"must be {allowed}, found {shown(raw)}", where) from None
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < low
        or (high is not None and value > high)
    ):
        raise InputError(f"must be {allowed}, found {shown(raw)}", where)
    return value


def _range(name: str) -> tuple[int, int | None]:
    """Lowest and highest value that a plan's field accepts."""
    bounds = Plan.model_fields[name].metadata
    low = next((bound.ge for bound in bounds if hasattr(bound, "ge")), 0)
    return low, next((bound.le for bound in bounds if hasattr(bound, "le")), None)


def _limit(name: str, raw: object, where: str) -> int:
    _check_name(name, where)
    if Plan.model_fields[name].annotation is not int:
        raise InputError(f"a limit needs a field that counts; fix {name} instead", where)
    return _whole(name, raw, where)
