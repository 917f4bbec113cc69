"""Checked scenarios from flags or arguments, for all commands and the Python API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from core.errors import InputError, shown
from core.loading import looks_like_path
from hwmodels.cluster import clusters
from meshwright.questions.numbers import adapter_of, as_numbers, number_format
from meshwright.questions.scenarios import read_keys, scenario_path
from simulator.frameworks import frameworks
from simulator.kinds import kind_of
from simulator.models import models
from simulator.scenario import Scenario, changed, find, make_scenario

KEYS = {
    "model": "model",
    "cluster": "cluster",
    "gpus": "gpus",
    "seq_len": "workload.seq_len",
    "global_batch": "workload.global_batch",
    "precision": "workload.precision",
    "adapter": "workload.adapter",
    "source_len": "workload.source_len",
    "images": "workload.images",
    "framework": "framework",
    "recipe": "recipe",
    "plan": "plan",
    "variations": "variations",
    "objective": "search.objective",
    "top": "search.top",
    "headroom": "search.headroom",
    "site": "site",
    "title": "title",
    "allow": "allow",
}
"""Key path of a scenario for each argument of a question."""

NEEDED = ("model", "cluster", "gpus", "global_batch")
"""Arguments required without a scenario file."""


NOT_ASKED = ("plan", "site", "allow", "variations", "search.objective", "search.top", "search.headroom")
"""Keys that do not change a scenario's question and title."""

DEGREES = ("tensor", "pipeline", "context")
"""Plan fields from which the number of replicas follows."""


def flag(name: str) -> str:
    """The command line's spelling of an argument."""
    return f"--{name.replace('_', '-')}"


HINTS = {
    "--cluster": "meshwright show clusters lists names",
    "--global-batch": "sequences of a step, or --batch-tokens 4M",
}
"""What helps where a flag is missing."""


def scenario_data(
    scenario: str | Path | Mapping[str, Any] | None, arguments: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], str, Path]:
    """Merge a scenario (name, path or mapping) with arguments, which replace its keys.

    Args:
        scenario: file, shipped name, mapping, or a result with plans, whose first one is meant; None to use
            the arguments alone.
        arguments: values by the names in ``KEYS``; None means not given. ``fix`` holds fields of the given
            plan, and of searched plans where ``plans`` is true; ``batch_tokens`` stands for
            ``global_batch``, ``price`` for that of the cluster's device.
        where: name of the arguments in errors.

    Returns:
        The scenario's mapping, its name in errors, and the folder that its paths are relative to.

    Raises:
        InputError: no such scenario, or a needed argument is missing.
    """
    arguments = {**arguments, **as_numbers(arguments)}
    batch_tokens = arguments.get("batch_tokens")
    if batch_tokens is not None and arguments.get("global_batch") is not None:
        raise InputError(
            "states the batch, and so does --global-batch; give one of them", flag("batch_tokens")
        )
    changes = {KEYS[name]: value for name, value in arguments.items() if value is not None and name in KEYS}
    if isinstance(precision := changes.get("workload.precision"), str):
        changes["workload.precision"] = number_format(precision)
    if isinstance(adapter := changes.get("workload.adapter"), str | int):
        changes["workload.adapter"] = adapter_of(str(adapter))
    data: dict[str, Any] = {}
    folder = Path()
    if callable(first := getattr(scenario, "scenario", None)):
        scenario = cast("Mapping[str, Any]", first())
    if isinstance(scenario, Mapping):
        data = dict(scenario)
    elif scenario:
        path = scenario_path(str(scenario))
        data, where, folder = read_keys(path), str(path), path.parent
    else:
        values = {**changes, **({"workload.global_batch": 0} if batch_tokens is not None else {})}
        missing = [flag(name) for name in NEEDED if KEYS[name] not in values]
        if missing:
            _check_names(changes)
            flags = " ".join(map(flag, NEEDED))
            hints = [HINTS[name] for name in missing if name in HINTS]
            hint_words = f" ({'; '.join(hints)})" if hints else ""
            raise InputError(f"{' '.join(missing)} missing{hint_words}; give a scenario, or all of {flags}")
    for key, value in changes.items():
        data = changed(data, key, from_here(value, folder), where)
    if scenario and "title" not in arguments and any(key not in NOT_ASKED for key in changes):
        data.pop("title", None)
    data = _with_fields(data, arguments.get("fix") or {}, arguments.get("plans", False), where)
    if (price := arguments.get("price")) is not None:
        from meshwright.questions.keys import set_key

        data = set_key(data, "cluster.device.price_per_hour_usd", price, folder, where)
        _name_source(data["cluster"]["device"], "price_per_hour_usd", "given (--price)")
    data = _with_sequence(data, where, folder)
    if batch_tokens is not None:
        data = _with_batch(data, batch_tokens, where)
    return data, where, folder


def _check_names(changes: Mapping[str, Any]) -> None:
    """Refuse unknown names, which a missing argument would hide.

    Raises:
        UnknownNameError: no such model, cluster or framework.
    """
    for name, get in (("model", models.get), ("cluster", clusters.get), ("framework", frameworks.get)):
        value = changes.get(name)
        if isinstance(value, str) and value and not looks_like_path(value):
            get(value, flag(name))


MOST_DIGITS = 9


def size_range(text: str) -> tuple[int, int]:
    """Least and most devices as typed: 256..2048, or one number.

    Raises:
        InputError: neither.
    """
    least, _, largest = text.partition("..")
    ends = least, largest or least
    if not all(end.isdigit() and len(end) <= MOST_DIGITS for end in ends):
        meant = re.fullmatch(r"(\d+) ?(?:-|:|to|\.) ?(\d+)", text)
        correction = f"; did you mean '{meant[1]}..{meant[2]}'?" if meant else ""
        raise InputError(
            f"must be a number of devices or a range 256..2048, found {shown(text)}{correction}", "--gpus"
        )
    return int(ends[0]), int(ends[1])


def device_count(text: str) -> int:
    """A number of devices as typed, where a question takes one.

    Raises:
        InputError: something else, or a range.
    """
    least, largest = size_range(text)
    if least != largest:
        raise InputError(f"must be one number of devices, found {shown(text)}", "--gpus")
    return least


def from_here(value: Any, folder: Path) -> Any:
    """A reference of the command line in a scenario of another folder; paths start at the current folder."""
    here = isinstance(value, str) and looks_like_path(value) and folder != Path() and Path(value).exists()
    return str(Path(value).absolute()) if here else value


def _name_source(definition: dict[str, Any], name: str, source: str) -> None:
    """State the source of a value that replaces the catalogue's."""
    if isinstance(sources := definition.get("sources"), Mapping):
        definition["sources"] = {**sources, name: source}


def _with_fields(data: dict[str, Any], fix: Mapping[str, Any], plans: bool, where: str) -> dict[str, Any]:
    """Replace plan fields of the scenario; the replicas follow from new degrees."""
    plan = data.get("plan")
    if isinstance(plan, Mapping) and "data" not in fix and any(name in fix for name in DEGREES):
        data = {**data, "plan": {name: value for name, value in plan.items() if name != "data"}}
    for name, value in fix.items():
        if "plan" in data or not plans:
            data = changed(data, f"plan.{name}", value, where)
        if plans:
            data = changed(data, f"search.fix.{name}", value, where)
    return data


def _with_sequence(data: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    """Maximum sequence length of the model, by default of the workload; rows of tokens hold the longest."""
    workload, model = data.get("workload", {}), data.get("model")
    if not isinstance(workload, Mapping) or "seq_len" in workload or not isinstance(model, str | Mapping):
        return data
    if "lengths" in workload and "tokens" in workload:
        return data
    if kind_of(data, where, folder).above != "plan" or (not workload and "model" not in data):
        return data
    longest = find(models, model, folder, f"{where}: model").max_sequence
    return changed(data, "workload.seq_len", longest, where)


def _with_batch(data: dict[str, Any], tokens: int, where: str) -> dict[str, Any]:
    """Convert a batch in tokens to sequences."""
    workload = data.get("workload")
    seq_len = workload.get("seq_len") if isinstance(workload, Mapping) else None
    if not isinstance(seq_len, int) or seq_len < 1 or tokens % seq_len or not tokens:
        problem = f"{tokens:,} tokens are no whole number of sequences of {shown(seq_len)}"
        raise InputError(problem, flag("batch_tokens"))
    return changed(data, "workload.global_batch", tokens // seq_len, where)


def ask(
    scenario: str | Path | Mapping[str, Any] | None, arguments: Mapping[str, Any], where: str = "command line"
) -> tuple[Scenario, str]:
    """Build and check the scenario of a question; see ``scenario_data``.

    Returns:
        The scenario, and its name in errors.

    Raises:
        InputError: a wrong key or value, an unknown name, an impossible plan; with the key path.
    """
    data, where, folder = scenario_data(scenario, arguments, where)
    check_trains(data, where, folder)
    return make_scenario(data, where, folder), where


def check_trains(data: Mapping[str, Any], where: str, folder: Path) -> None:
    """Refuse scenarios that do not ask about training on one kind of node.

    Raises:
        InputError: what takes such a scenario.
    """
    kind = kind_of(data, where, folder)
    if "placement" in kind.keys:
        refuse_groups(where)
    if kind.elsewhere:
        raise InputError(kind.elsewhere, f"{where}: workload")


def refuse_groups(where: str) -> NoReturn:
    """Refuse a cluster of groups where a question needs nodes of one kind.

    Raises:
        InputError: always.
    """
    advice = "`meshwright plan` ranks plans of it by throughput, `simulate` and `whatif` take one of them"
    raise InputError(
        f"has groups of nodes, which this question does not range over; {advice}", f"{where}: cluster"
    )
