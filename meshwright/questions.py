"""From flags or arguments to a checked scenario: what every command and the Python API ask with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwmodels.errors import InputError
from hwmodels.loading import read_mapping
from meshwright.scenarios import scenario_path
from simulator.scenario import Scenario, changed, make_scenario

KEYS = {
    "model": "model",
    "cluster": "cluster",
    "gpus": "gpus",
    "seq_len": "workload.seq_len",
    "global_batch": "workload.global_batch",
    "precision": "workload.precision",
    "framework": "framework",
    "plan": "plan",
    "variations": "variations",
    "objective": "search.objective",
    "top": "search.top",
    "headroom": "search.headroom",
    "title": "title",
}
"""Key path of a scenario for each argument of a question."""

NEEDED = ("model", "cluster", "gpus", "seq_len", "global_batch")
"""Arguments without which a question that names no scenario file cannot be asked."""


def flag(name: str) -> str:
    """The command line's spelling of an argument."""
    return f"--{name.replace('_', '-')}"


def scenario_data(
    scenario: str | Path | Mapping[str, Any] | None, arguments: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], str, Path]:
    """Merge a scenario (name, path or mapping) with arguments, which replace its keys.

    Args:
        scenario: file, shipped name or mapping; None where the arguments alone ask the question.
        arguments: values by the names in ``KEYS``; None means not given.
        where: name of the arguments in errors.

    Returns:
        The scenario's mapping, its name in errors, and the folder that its paths are relative to.

    Raises:
        InputError: no such scenario, or a needed argument is missing.
    """
    changes = {KEYS[name]: value for name, value in arguments.items() if value is not None}
    data: dict[str, Any] = {}
    folder = Path()
    if isinstance(scenario, Mapping):
        data = dict(scenario)
    elif scenario:
        path = scenario_path(str(scenario))
        data, where, folder = dict(read_mapping(path)), str(path), path.parent
    else:
        missing = [flag(name) for name in NEEDED if KEYS[name] not in changes]
        if missing:
            asked = " ".join(map(flag, NEEDED))
            raise InputError(f"{' '.join(missing)} missing; give a scenario, or all of {asked}")
    for key, value in changes.items():
        data = changed(data, key, value, where)
    return data, where, folder


def ask(
    scenario: str | Path | Mapping[str, Any] | None, arguments: Mapping[str, Any], where: str = "command line"
) -> tuple[Scenario, str]:
    """Build and check the scenario that a question means; see ``scenario_data``.

    Returns:
        The scenario, and its name in errors.

    Raises:
        InputError: a wrong key or value, an unknown name, an impossible plan; with the key path.
    """
    data, where, folder = scenario_data(scenario, arguments, where)
    return make_scenario(data, where, folder), where
