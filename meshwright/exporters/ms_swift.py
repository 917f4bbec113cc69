"""``megatron sft`` and ``megatron pt`` of ms-swift as the command of Megatron-LM that they start.

ms-swift (modelscope/ms-swift, swift/megatron/arguments) spells Megatron's options with underscores and
``true``, takes the shape of the model from its checkpoint, and has defaults of its own.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from core.errors import InputError
from meshwright.exporters.server_files import ENDS
from meshwright.exporters.shell import expanded_commands, read_options
from simulator.models import models

START = re.compile(r"(?:^|[\s/])megatron\s+(sft|pt|rlhf|grpo)\b")
DEVICES = (("--nproc-per-node", "NPROC_PER_NODE"), ("--nnodes", "NNODES"))
RENAMED = {"--max-length": "--seq-length"}
DEFAULTS = {
    "--micro-batch-size": "1",
    "--global-batch-size": "16",
    "--recompute-granularity": "selective",
    "--attention-backend": "flash",
    "--use-distributed-optimizer": "true",
    "--attention-dropout": "0",
    "--hidden-dropout": "0",
    "--bf16": "true",
}
"""Of ms-swift, where Megatron-LM has others."""
TUNERS = ("--train-type", "--tuner-type")
NOT_OF_MEGATRON = ("--dataset", "--model", "--load", "--packing", "--padding-free", "--torch-dtype")


SHARED = "--moe-shared-expert-overlap"
"""Without effect on a model that shares no expert."""


class SwiftLaunch(NamedTuple):
    """A command of Megatron-LM, and the model's name in the catalogue; empty where it has none."""

    command: str
    model: str


def megatron_command(text: str, where: str) -> SwiftLaunch | None:
    """The command that ms-swift starts; None of other texts.

    Args:
        text: of a script or a command line.
        where: to name in errors.

    Raises:
        InputError: it trains adapters, or post-trains.
    """
    if not START.search(re.sub(r"\\[ \t]*\n", " ", text)):
        return None
    for command in expanded_commands(text, where):
        if start := START.search(command):
            return _translated(start[1], command[: start.start()], command[start.end() :], where)
    return None


def _translated(kind: str, before: str, after: str, where: str) -> SwiftLaunch:
    if kind not in ("sft", "pt"):
        raise InputError(f"megatron {kind}: post-training of ms-swift is not read; meshwright plan rl", where)
    words = shlex.split(after)
    words = words[: next((place for place, word in enumerate(words) if word in ENDS), len(words))]
    typed = {f"--{name[2:].replace('_', '-')}": value for name, value in read_options(words).items()}
    tuner = next((str(typed[name]) for name in TUNERS if name in typed), "full")
    if tuner != "full":
        raise InputError(
            f"--train_type {tuner}: adapters of Megatron are not read; meshwright plan train --adapter 16 "
            "prices them",
            where,
        )
    options = {**DEFAULTS, **{RENAMED.get(name, name): value for name, value in typed.items()}}
    model = _model(str(typed.get("--model") or typed.get("--load") or ""))
    shares = model and (moe := models.get(model).moe) and moe.shared_experts
    left_out = NOT_OF_MEGATRON if shares or not model else (*NOT_OF_MEGATRON, SHARED)
    options = {name: value for name, value in options.items() if name not in left_out}
    launcher = [
        part
        for name, variable in DEVICES
        if (count := re.search(rf"\b{variable}=[\"']?(\d{{1,6}})\b", before))
        for part in (name, count[1])
    ]
    command = ["torchrun", *launcher, "pretrain_gpt.py"]
    for name, value in options.items():
        if str(value).lower() == "false":
            continue
        command += [name] if value is True or str(value).lower() == "true" else [name, str(value)]
    return SwiftLaunch(shlex.join(command), model)


def _model(checkpoint: str) -> str:
    """The model of the catalogue that a checkpoint holds; empty for another."""
    name = checkpoint.rstrip("/").removesuffix("-mcore")
    spelled = (name, name.rpartition("/")[2], name.removesuffix("-Base"), name.removesuffix("-FP8"))
    return next((str(each) for each in spelled if each and models.resolve(each)), "")
