"""Megatron-LM's options of earlier releases and of Megatron-DeepSpeed, as those that the table reads.

Sources: Megatron-LM v2.0 to v3.0 (megatron/arguments.py), Transformer Engine's first options in it, and
Megatron-DeepSpeed (megatron/arguments.py; runtime/bf16_optimizer.py of DeepSpeed, which shards the states of
stage 0 too).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.errors import InputError, shown
from core.parsing import exists, parse_json, read_text
from meshwright.exporters.base import Launch
from meshwright.exporters.deepspeed_state import ZERO
from meshwright.exporters.state_read import TAKEN, deepspeed_state
from meshwright.exporters.table import Facts, LauncherTable, Options, same

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "--model-parallel-size": "--tensor-model-parallel-size",
        "--batch-size": "--micro-batch-size",
        "--moe-expert-parallel-size": "--expert-model-parallel-size",
        "--checkpoint-num-layers": "--recompute-num-layers",
        "--activations-checkpoint-num-layers": "--recompute-num-layers",
        "--activations-checkpoint-method": "--recompute-method",
        "--recompute-activations-method": "--recompute-method",
        "--pad-vocab-size-to": "--vocab-size",
        "--qk-nope-head-dim": "--qk-head-dim",
        "--qk-rope-head-dim": "--qk-pos-emb-head-dim",
    }
)
"""Options of the same value by another name."""
FULL: Options = {"--recompute-granularity": "full", "--recompute-method": "uniform"}
MEANT: Mapping[str, Options] = MappingProxyType(
    {
        "--checkpoint-activations": FULL,
        "--activations-checkpoint-method": {"--recompute-granularity": "full"},
        "--fp8-hybrid": {"--fp8-format": "hybrid"},
        "--fp8-e4m3": {"--fp8-format": "e4m3"},
    }
)
"""What an older option means in all."""
FLAGS = ("--checkpoint-activations", "--fp8-hybrid", "--fp8-e4m3", "--no-pipeline-parallel")
ENGINE = "--deepspeed"
ASKED, STAGE = "--zero-stage", "deepspeed.stage"
"""ZeRO's stage as the script states it, and as the table reads it: DeepSpeed's configuration decides."""
PARTITION = "--pp-partition-method"
HOST = ("offload_optimizer", "offload_param")


def current(launch: Launch, path: Path | None, where: str) -> Launch:
    """The launch with the names of today's release, and with what its DeepSpeed configuration states.

    Args:
        launch: as the script has it.
        path: of the script; the configuration is relative to it.
        where: to name in errors.

    Raises:
        InputError: two names of one option disagree, or the configuration is missing or another run's.
    """
    options: Options = {}
    for spelled, value in launch.options.items():
        name = (
            spelled.replace("_", "-") if spelled.startswith("--") and "deepspeed" not in spelled else spelled
        )
        renamed = RENAMED.get(name, name)
        if renamed in options and not same(options[renamed], value):
            raise InputError(f"{name} and {renamed} disagree: {value} and {options[renamed]}", where)
        if name not in FLAGS:
            options[renamed] = value
    for name, meant in MEANT.items():
        if launch.options.get(name) not in (None, False):
            options = {**meant, **options}
    _read_dropout(options)
    if PARTITION in options:
        options |= _partition(str(options.pop(PARTITION)), where)
    launch = replace(launch, options=options)
    return _with_engine(launch, path, where) if ENGINE in options else launch


DROPOUTS = ("--hidden-dropout", "--attention-dropout")


def _read_dropout(options: Options) -> None:
    """Any share above 0 is dropout, which the absence of the options means too."""
    if any(re.fullmatch(r"0*\.?0*[1-9]\d*(\.\d*)?", str(options.get(name, 0))) for name in DROPOUTS):
        for name in DROPOUTS:
            options.pop(name, None)


def _partition(method: str, where: str) -> Options:
    """Stages of Megatron-DeepSpeed by kind of layer: of transformer layers, or with both embeddings as one.

    Raises:
        InputError: another method, such as parameters.
    """
    kinds = set(method.strip("'\"").lower().removeprefix("type:").split("|"))
    if kinds == {"transformer", "embedding"}:
        return {f"--account-for-{end}-in-pipeline-split": True for end in ("embedding", "loss")}
    if kinds & {"transformer", "uniform"} and len(kinds) == 1:
        return {}
    problem = f"stages by {shown(method)} are not read; type:transformer and type:transformer|embedding are"
    raise InputError(
        f"{problem}; state plan.first_stage_layers and last_stage_layers", f"{where}: {PARTITION}"
    )


def _with_engine(launch: Launch, path: Path | None, where: str) -> Launch:
    """What DeepSpeed's engine adds: ZeRO's stage and places of states."""
    options = {name: value for name, value in launch.options.items() if not name.startswith("--deepspeed")}
    named = launch.options.get("--deepspeed_config", launch.options.get("--deepspeed-config"))
    config, notes = _configuration(launch, named, path, where)
    _check_batch(config, options, where)
    zero = config.get(ZERO, {}) if isinstance(config.get(ZERO, {}), dict) else {}
    of_script = options.pop(ASKED, 0)
    stage = zero.get("stage", of_script)
    if not str(stage).isdigit():
        raise InputError(f"a stage from 0 to 3 is needed, found {shown(stage)}", f"{where}: {ZERO}.stage")
    options[STAGE] = max(int(str(stage)[:3]), 1) if "--bf16" in options else int(str(stage)[:3])
    for kind in HOST:
        for key, value in (zero.get(kind) or {}).items() if isinstance(zero.get(kind), dict) else ():
            if str(zero[kind].get("device", "none")) != "none":
                options[f"{ZERO}.{kind}.{key}"] = value
    return replace(launch, options={**options, ENGINE: True}, notes=(*launch.notes, *notes))


def _configuration(
    launch: Launch, named: Any, path: Path | None, where: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """DeepSpeed's configuration: written by the script, or a file beside it."""
    if not isinstance(named, str):
        return {}, ()
    text = launch.files.get(named)
    file = (path.parent if path else Path()) / named
    if text is None and exists(file) and file.is_file():
        text = read_text(file)
    if text is None:
        if ASKED not in launch.options:
            problem = f"the configuration {named!r} is neither beside the script nor written by it"
            raise InputError(f"{problem}; add --zero-stage, or the file", f"{where}: --deepspeed_config")
        return {}, (f"{named} is not here: the stage is that of --zero-stage, and no state is offloaded",)
    data = parse_json(text, f"{where}: {named}")
    if not isinstance(data, dict):
        raise InputError(f"a mapping is needed, found {shown(data)}", f"{where}: {named}")
    return data, ()


def _check_batch(config: Mapping[str, Any], options: Options, where: str) -> None:
    """DeepSpeed's batch sizes are those of the script."""
    for key, option in (
        ("train_micro_batch_size_per_gpu", "--micro-batch-size"),
        ("train_batch_size", "--global-batch-size"),
    ):
        configured = config.get(key, "auto")
        if option in options and configured != "auto" and not same(configured, options[option]):
            problem = f"{key} is {shown(configured)}, and {option} {shown(options[option])}"
            raise InputError(f"{problem}: DeepSpeed refuses that", where)


OF_THE_FORK = ("attention", "overlap_tensor", "cross_entropy", "gradient_bytes", "reduce_bytes", "graphs")
"""Fields that a Megatron-DeepSpeed launch without the option leaves to its own release, not to core 0.19."""


def deepspeed_facts(facts: Facts, options: Options, launcher: LauncherTable, where: str) -> Facts:
    """Facts of a Megatron-DeepSpeed launch: its engine, and states that ZeRO offloads.

    Raises:
        InputError: an unknown device of an offload.
    """
    state = deepspeed_state(options, where)
    stage = facts.get("plan.zero", 0)
    framework = {2: "deepspeed-zero1", 3: "deepspeed-zero3"}.get(stage, "megatron-deepspeed")
    silent, _ = launcher.read({})
    ours = {f"plan.{name}" for name in OF_THE_FORK}
    read_facts = {
        name: value for name, value in facts.items() if name not in ours or value != silent.get(name)
    }
    if any(name.startswith("--use-flash-attn") for name in options):
        read_facts["plan.attention"] = "flash"
    overlap = {"plan.overlap_gradients": stage == 3, "plan.overlap_parameters": stage == 3}
    taken = [*state.get(TAKEN, ()), ENGINE, STAGE]
    return {**read_facts, **state, **overlap, "derived.framework": framework, TAKEN: taken}
