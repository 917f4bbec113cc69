"""Launch files wrapped by exporters to job schedulers."""

from __future__ import annotations

import shlex
from pathlib import Path

from meshwright.exporters.base import Export, Question
from meshwright.exporters.serving import FAMILIES, family_of
from meshwright.exporters.table import table
from simulator.serving.setting import PoolSetting

BY_FRAMEWORK = (
    ("torchtitan", "torchtitan"),
    ("torch-", "torchtitan"),
    ("deepspeed", "deepspeed"),
    ("megatron-bridge", "megatron-bridge"),
)
"""Prefix of a framework's name, and the launcher of its jobs."""
OTHERS = "megatron-lm"
SHIPPED = {"megatron-bridge": "megatron-bridge-0.6.yaml", "torchtitan": "torchtitan-0.3.yaml"}
"""Targets limited to the models that they ship."""


def launcher_of(framework: str, model: str) -> str:
    """The export target of a training framework; Megatron-LM where that target does not ship the model."""
    target = next((known for prefix, known in BY_FRAMEWORK if framework.startswith(prefix)), OTHERS)
    if target in SHIPPED and model not in table(SHIPPED[target]).models:
        return OTHERS
    return target


def engine_target(preset: str) -> str:
    """The export target of an engine preset's name."""
    return next((target for family, target in FAMILIES.items() if preset.startswith(family)), "vllm")


def export_words(target: str, saved: Path | None) -> str:
    """The export command of a found plan, for people."""
    file = shlex.quote(str(saved or "plan.yaml"))
    first = "" if saved else f"add --save {file}, then "
    return f"To launch it: {first}meshwright export {file} --to {target} -o launch"


def wrapped(question: Question) -> tuple[str, Export]:
    """The launcher of the question's framework or engine, and its files."""
    from meshwright.exporters import exporter

    if question.serves:
        setting = question.deployed()
        target = family_of(setting, setting.pools[0]) or "vllm"
    else:
        name = question.training()[0].setting.framework.name
        target = launcher_of(name, question.training()[0].setting.model.name)
    return target, exporter(target).write(question)


def placed_gaps(made: Export) -> tuple[str, ...]:
    """Gaps of the launcher that remain when a job scheduler starts the replicas."""
    return tuple(gap for gap in made.gaps if "start the script once a replica" not in gap)


def replica_nodes(question: Question, pool: PoolSetting) -> tuple[int, int]:
    """Nodes of one replica, and its devices on each."""
    cluster = question.deployed().cluster
    nodes = cluster.nodes_for(pool.pool.devices)
    return nodes, -(-pool.pool.devices // nodes)
