"""Key paths of a scenario (``cluster.network.nic_gbps``): their list, and replacing their values.

A path reaches through catalogue names: where a scenario says ``cluster: dgx-h100``, the definition of that
cluster takes the place of its name as soon as something inside it is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from core.errors import SHORT_NAMES, InputError, UnknownNameError
from core.loading import Catalogue, build
from simulator.frameworks import default_name
from simulator.kinds import kind_of
from simulator.plan import Plan, field_name
from simulator.scenario import CATALOGUES, Definition, find, find_framework
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.state.adapter import Adapter
from simulator.state.policy import POLICY_FIELDS

Data = dict[str, Any]

PLAN_FIELDS = ("plan", "search.fix", "search.limit", "framework.defaults")
"""Mappings whose keys are the fields of a plan."""


NOT_KEYS = ("variations", "cluster.devices")
"""Keys that no variation changes: the variations, and derived keys."""


class Place(NamedTuple):
    """A place in a scenario: its key path, its type, and its value."""

    path: str
    kind: Any
    value: Any


ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "plan": {name: f"workload.{name}" for name in ("seq_len", "global_batch", "precision", "adapter")},
    "deployment": {
        "rate": "workload.arrivals.rate",
        "workload.rate": "workload.arrivals.rate",
        "router": "deployment.router",
        "isl": "workload.input",
        "osl": "workload.output",
        "ttft": "workload.slo.ttft",
        "tpot": "workload.slo.tpot",
    },
}
"""Key paths of what the commands call otherwise, by the part of the scenario that is answered for."""


def set_key(data: Mapping[str, Any], key: str, value: object, folder: Path, where: str) -> Data:
    """Return a scenario with one key path set; names of the catalogue that it leads through are written out.

    Args:
        data: the scenario as its file holds it.
        key: names (or, in lists, names or numbers of entries) joined by dots.
        value: the new value.
        folder: base of the scenario's relative paths.
        where: name of the source in errors.

    Raises:
        UnknownNameError: there is no such key (the nearest is offered).
        InputError: a name in the scenario that the path leads through is unknown or wrong.
    """
    key = full_key(key, data)
    first, *rest = key.split(".")
    if rest and first in catalogues_of(data):
        data = {**data, first: _written_out(data, first, folder, where)}
        if first == "framework":
            # The expanded definition includes the recipe; applying it again would undo the change.
            data.pop("recipe", None)
    place = Place("", definition_of(data), data)
    for part in (first, *rest):
        children = {child.path.rpartition(".")[2]: child for child in _children(place)}
        if part not in children:
            raise _unknown(data, key, folder, where)
        place = children[part]
    return _put(data, [first, *rest], value)


def full_key(key: str, data: Mapping[str, Any]) -> str:
    """A key path; fields of the plan, or of the deployment where the scenario serves, and arguments of the
    commands are written out (tp, plan.pp, seq_len, rate)."""
    part, _, name = key.rpartition(".")
    kind = kind_of(data)
    if key in ARGUMENTS.get(kind.above, {}):
        return ARGUMENTS[kind.above][key]
    above, fields = kind.above, kind.fields()
    if part not in ("", above) or (not part and name in definition_of(data).model_fields):
        return key
    field = field_name(name)
    return f"{above}.{field}" if field in fields else key


def key_paths(data: Mapping[str, Any], folder: Path, where: str) -> list[str]:
    """All key paths of a scenario.

    Raises:
        InputError: a catalogue name in it is unknown, or a definition is wrong.
    """
    written = {name: _written_out(data, name, folder, where) for name in catalogues_of(data)}
    return list(_below(Place("", definition_of(data), {**data, **written})))


def definition_of(data: Mapping[str, Any]) -> type[BaseModel]:
    """The keys of a scenario of its kind."""
    return kind_of(data).definition(data)


def catalogues_of(data: Mapping[str, Any]) -> Mapping[str, Catalogue[Any]]:
    """The keys of a scenario that hold a catalogue name, a path or a mapping."""
    fields = definition_of(data).model_fields
    return {name: catalogue for name, catalogue in kind_of(data).catalogues().items() if name in fields}


def _below(place: Place) -> Iterator[str]:
    for child in _children(place):
        yield child.path
        yield from _below(child)


def _unknown(data: Mapping[str, Any], key: str, folder: Path, where: str) -> InputError:
    paths = key_paths(data, folder, where)
    same_end = [path for path in paths if path.endswith(f".{key}")]
    if same_end:
        return UnknownNameError("key", key, paths, where, same_end[:3])
    matches = get_close_matches(key.lower(), paths, n=3, cutoff=0.85)
    if matches:
        return UnknownNameError("key", key, paths, where, matches[:1])
    # Of keys with one name, that of the plan is meant.
    ordered = sorted(paths, key=lambda path: path.startswith("plan."))
    ends = {path.rpartition(".")[2]: path for path in ordered}
    short = {name: path for name in SHORT_NAMES if (path := full_key(name, data)) != name}
    named = short | ends
    last = key.rpartition(".")[2].lower()
    # A word of the key is more than letters in common: nic_bandwidth means nic_gbps, not memory_bandwidth.
    same_word = [
        name for name in named if name.partition("_")[0].rstrip("s") == last.partition("_")[0].rstrip("s")
    ]
    nearest = get_close_matches(
        last, same_word if "_" in last and same_word else named, n=3, cutoff=0.4 if same_word else 0.65
    )
    parent = key.rpartition(".")[0]
    siblings = [path.rpartition(".")[2] for path in paths if parent and path.rpartition(".")[0] == parent]
    candidates = [name for name in siblings if last in name.split("_")] or get_close_matches(last, siblings)
    beside = [f"{parent}.{name}" for name in candidates[:1]]
    return UnknownNameError("key", key, siblings or paths, where, [named[name] for name in nearest] or beside)


def _written_out(data: Mapping[str, Any], name: str, folder: Path, where: str) -> Data:
    fields = definition_of(data).model_fields
    reference = data.get(name, fields[name].default if not fields[name].is_required() else None)
    if name == "framework" and (reference is None or data.get("recipe")):
        device = find(CATALOGUES["cluster"], data["cluster"], folder, f"{where}: cluster").device
        if data.get("recipe"):
            return find_framework(build(Definition, data, where), device, folder, where).model_dump()
        stated = (data.get("workload") or {}).get("adapter")
        adapter = build(Adapter, stated, f"{where}: workload.adapter") if stated else None
        gpus = data.get("gpus")
        # A wrong number is reported where the scenario is checked.
        reference = default_name(device, adapter, gpus if isinstance(gpus, int) and gpus > 0 else 1)
    entry = find(catalogues_of(data)[name], reference, folder, f"{where}: {name}")
    return entry.model_dump(exclude={"devices"} if name == "cluster" else None)


def _children(place: Place) -> Iterator[Place]:
    """The keys of the value at a place, or of its type."""
    path, value = place.path, place.value
    if isinstance(value, list):
        kind = next(iter(get_args(place.kind)), None)
        for index, item in enumerate(value):
            for name in (str(index), item.get("name") if isinstance(item, Mapping) else None):
                if isinstance(name, str):
                    yield Place(_join(path, name), kind, item)
    elif value is None or isinstance(value, Mapping):
        for name, kind in _fields(place).items():
            child = _join(path, name)
            if child not in NOT_KEYS:
                yield Place(child, kind, (value or {}).get(name))


def _fields(place: Place) -> dict[str, Any]:
    """Names below a place with the types of their values."""
    if place.path in PLAN_FIELDS:
        fields = Plan.model_fields
        return {name: fields[name].annotation if name in POLICY_FIELDS else None for name in fields}
    if place.path.startswith("deployment") and place.path.endswith("options"):
        option_fields = EngineOptions.model_fields if place.path.endswith(".options") else {}
        return dict.fromkeys((*option_fields, *(place.value or {})))
    if place.path.rpartition(".")[0] == "deployment.pools":
        return {name: info.annotation for name, info in Pool.model_fields.items()}
    kinds = _kinds(place.kind)
    if place.value is None and NoneType in kinds:
        return {}  # a part that this definition does not have; it can only be given as a whole
    fields: dict[str, Any] = {}
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields |= {info.alias or name: info.annotation for name, info in kind.model_fields.items()}
        elif get_origin(kind) is dict:
            names, inner = get_args(kind)
            fields |= dict.fromkeys((*get_args(names), *(place.value or {})), inner)
    if not place.path:
        fields |= {name: catalogue.model for name, catalogue in catalogues_of(place.value or {}).items()}
    return fields


def _kinds(kind: Any) -> tuple[Any, ...]:
    """A type and the members of its union or annotation."""
    inner = [member for part in get_args(kind) for member in _kinds(part)]
    return (kind, *inner) if get_origin(kind) is not dict else (kind,)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _put(branch: Any, parts: list[str], value: object) -> Any:
    if not parts:
        return value
    first, *rest = parts
    if isinstance(branch, list):
        numbered = enumerate(branch)
        return [_put(item, rest, value) if _is(item, index, first) else item for index, item in numbered]
    branch = branch or {}
    return {**branch, first: _put(branch.get(first), rest, value)}


def _is(item: object, index: int, part: str) -> bool:
    return part == str(index) or (isinstance(item, Mapping) and item.get("name") == part)
