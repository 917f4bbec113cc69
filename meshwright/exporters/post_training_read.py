"""verl's and NeMo RL's configurations as scenarios of post-training.

The keys are those that an export writes (`key_files`); a reader says what the launcher makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core.errors import InputError
from meshwright.exporters import nemo_rl_read, verl_read
from meshwright.exporters.base import Imported
from meshwright.exporters.dotted_keys import flat_yaml, overrides
from meshwright.exporters.key_files import key_file
from meshwright.exporters.key_values import KeyValues
from meshwright.exporters.post_training_parts import ASSUMED_SHARE
from simulator.rl.scenario import make_rl

READERS: Mapping[str, tuple[str, Callable[[KeyValues], dict[str, Any]]]] = {
    "verl": ("actor_rollout_ref.", verl_read.scenario),
    "nemo-rl": ("grpo.", nemo_rl_read.scenario),
}
"""Prefix of keys by which a target is recognised, and its reader."""


def read_post_training(
    text: str, where: str, path: Path | None, stated: Mapping[str, Any], target: str = ""
) -> Imported | None:
    """A configuration of verl or NeMo RL as a scenario; None where the text is neither.

    Args:
        text: YAML, or a command with Hydra's ``key=value`` words.
        where: its name in errors.
        path: its file, whose recipes below are read.
        stated: ``model``, ``cluster`` and ``gpus`` that replace the file's.
        target: verl or nemo-rl, where the user names it.

    Raises:
        InputError: a value of a wrong type, or a plan that cannot run, with its place.
    """
    flat = flat_yaml(text, path) or overrides(text)
    for name, (mark, reader) in READERS.items():
        if target in ("", name) and any(key.startswith(mark) for key in flat):
            values = KeyValues(flat, where, key_file(name))
            return _imported(reader(values), name, values, stated)
    if target:
        raise InputError(f"has no keys of {target}", where)
    return None


def _imported(
    scenario: dict[str, Any], target: str, values: KeyValues, stated: Mapping[str, Any]
) -> Imported:
    scenario |= {key: stated[key] for key in ("model", "cluster", "gpus") if stated.get(key)}
    if "cluster" not in scenario:
        raise InputError("state the cluster", "--cluster")
    make_rl(scenario, values.where, Path())
    aside = {key: value for key, value in values.flat.items() if key not in values.read}
    mean = ASSUMED_SHARE * scenario["workload"]["output"]["most"]
    note = f"lengths of answers are not in the file: a mean of {mean:,.0f} tokens is assumed"
    return Imported(scenario, target, aside, (), (note,))
