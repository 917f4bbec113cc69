"""Plans as launch files: one module per exporter, found by name; option names in versioned tables."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from meshwright.exporters.base import Export, Exporter, ExportQuestion

TARGETS = (
    "megatron-lm",
    "megatron-bridge",
    "deepspeed",
    "torchtitan",
    "trl",
    "axolotl",
    "llama-factory",
    "vllm",
    "sglang",
    "trtllm",
    "dynamo",
    "llm-d",
    "slurm",
    "k8s",
    "kserve",
    "verl",
    "nemo-rl",
    "slime",
)

ADAPTED = ("trl", "axolotl", "llama-factory")
"""Targets whose files train adapters."""

KEYED = {"tuning": ADAPTED, "post_training": ("verl", "nemo-rl", "slime")}
"""Modules of targets whose keys are data."""

ALIASES = {
    "peft": "trl",
    "sft": "trl",
    "llamafactory": "llama-factory",
    "megatron": "megatron-lm",
    "megatron-core": "megatron-lm",
    "mcore": "megatron-lm",
    "nemo": "megatron-bridge",
    "bridge": "megatron-bridge",
    "titan": "torchtitan",
    "fsdp": "torchtitan",
    "zero": "deepspeed",
    "tensorrt-llm": "trtllm",
    "trt-llm": "trtllm",
    "kubernetes": "k8s",
    "sbatch": "slurm",
}
"""Usual names of targets."""


def exporter(target: str, option: str = "--to") -> Exporter:
    """The exporter of a target, which the option names.

    Raises:
        UnknownNameError: no such target (nearest offered).
    """
    target = ALIASES.get(target.lower(), target.lower())
    if target not in TARGETS:
        raise UnknownNameError("export target", target, TARGETS, option)
    for module, targets in KEYED.items():
        if target in targets:
            return import_module(f"meshwright.exporters.{module}").EXPORTERS[target]
    return import_module(f"meshwright.exporters.{target.replace('-', '_')}").EXPORTER


def export(question: ExportQuestion, target: str) -> Export:
    """The files of a target for a question.

    Raises:
        UnknownNameError: no such target.
        InputError: a target of another kind of question.
    """
    writer = exporter(target)
    kind = question.kind
    if kind not in writer.kinds:
        others = [name for name in TARGETS if kind in exporter(name).kinds]
        problem = f"{writer.name} takes {writer.kinds[0]} plans, this one is for {kind}: {', '.join(others)}"
        raise InputError(problem, "--to")
    adapter = None if question.scenario is None else question.training()[0].setting.training.adapter
    if adapter is not None and writer.name not in ADAPTED:
        raise InputError(
            f"{writer.name} has no adapters in its files, which would train all parameters: "
            f"{' or '.join(ADAPTED)} have them",
            "--to",
        )
    launch = writer.write(question)
    levers = {}
    if writer.table and question.scenario is not None:
        from meshwright.exporters.facts import launched_levers
        from meshwright.exporters.table import table

        scenario, plan = question.training()
        levers = launched_levers(scenario.setting, plan, table(writer.table))
    return replace(launch, framework=_other_framework(launch.gaps), levers=levers)


def _other_framework(gaps: tuple[str, ...]) -> str:
    """The framework that files run, where it is another than the predicted one."""
    framework_gap = next((gap for gap in gaps if gap.startswith("framework = ")), "")
    return framework_gap.rpartition("these files run ")[2]


def write_files(launch: Export, folder: Path) -> list[Path]:
    """Write all files of an export, or none.

    Raises:
        InputError: one cannot be written.
    """
    from core.files import write_text, written_together

    paths = [folder / name for name in launch.files]
    with written_together():
        for path, text in zip(paths, launch.files.values(), strict=True):
            write_text(path, text)
    return paths
