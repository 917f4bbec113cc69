"""The launcher of a framework or of an engine, and the command that exports a plan to it."""

from __future__ import annotations

import shlex
from collections.abc import Container
from pathlib import Path

from core.cache import read_shipped

FAMILIES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
"""Export target of an engine family."""
BY_FRAMEWORK = (
    ("torchtitan", "torchtitan"),
    ("torch-", "torchtitan"),
    ("deepspeed", "deepspeed"),
    ("megatron-bridge", "megatron-bridge"),
    ("trl", "trl"),
    ("unsloth", "trl"),
    ("torchtune", "axolotl"),
)
"""Prefix of a framework's name, and the launcher of its jobs."""
OTHERS = "megatron-lm"
SHIPPED = {"megatron-bridge": "megatron-bridge-0.6.yaml", "torchtitan": "torchtitan-0.3.yaml"}
"""Targets limited to the models that they ship."""


def launcher_of(framework: str, model: str) -> str:
    """The export target of a training framework; Megatron-LM where that target does not ship the model."""
    target = next(
        (exporter_name for prefix, exporter_name in BY_FRAMEWORK if framework.startswith(prefix)), OTHERS
    )
    return OTHERS if target in SHIPPED and model not in _models(SHIPPED[target]) else target


def _models(file: str) -> Container[str]:
    """Catalogue models that a target ships; the whole table's definition would take 10 ms to build."""
    return read_shipped(Path(__file__).with_name(file))["models"]


def engine_target(preset: str) -> str:
    """The export target of an engine preset's name."""
    return next((target for family, target in FAMILIES.items() if preset.startswith(family)), "vllm")


def export_words(target: str, saved: Path | None) -> str:
    """The export command of a found plan, for people."""
    file = shlex.quote(str(saved or "plan.yaml"))
    first = "" if saved else f"add --save {file}, then "
    return f"To launch it: {first}meshwright export {file} --to {target} -o launch"
