"""Sharding and offload of fine-tuning files: DeepSpeed's configuration, FSDP's keys, or neither.

Sources: transformers' Trainer (``fsdp``, ``fsdp_config``), Accelerate 1.x (utils/dataclasses.py:
FullyShardedDataParallelPlugin, DeepSpeedPlugin), DeepSpeed's configuration of ZeRO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.errors import InputError, shown
from core.loading import exists
from core.parsing import read_text
from meshwright.exporters.deepspeed_state import ZERO
from meshwright.exporters.state_read import EVERYTHING, deepspeed_state
from meshwright.exporters.table import Facts, Options

STRATEGIES = {
    "full_shard": 3,
    "1": 3,
    "shard_grad_op": 2,
    "2": 2,
    "no_shard": 0,
    "3": 0,
}
"""Stages of FSDP's strategies, by name and by Accelerate's number."""
HYBRID = ("hybrid_shard", "hybrid_shard_zero2", "_hybrid_shard_zero2", "4", "5")
MORE_THAN_A_STAGE = re.compile(r"tp|alst|ulysses|sp\d|hpz|mics|moe|nvme")
"""Parts of a configuration's name that say more than ZeRO's stage."""


NOT_YAML = (yaml.YAMLError, RecursionError, LookupError, ValueError, AttributeError)
"""Errors of texts that are no YAML; the last three are tags of values that have another form."""


def yaml_of(text: str) -> Any:
    """The value of a YAML text; None where it is none."""
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except NOT_YAML:
        return None


def sharding(options: Options, where: str, folder: Path) -> tuple[Facts, list[str]]:
    """Facts of the stage and of the places of states, and notes.

    Args:
        options: keys of the file.
        where: to name in errors.
        folder: of the file; DeepSpeed's configuration is relative to it.

    Raises:
        InputError: a configuration that is not there, or a strategy that no plan states.
    """
    inner = options.get("deepspeed_config")
    inner = inner if isinstance(inner, Mapping) else {}
    named = options.get("deepspeed") or inner.get("deepspeed_config_file")
    if isinstance(named, Mapping):
        return _engine(named.get(ZERO), where)
    if isinstance(named, str) and named:
        return _named(named, folder, where)
    if "zero_stage" in inner:
        engine_config = {
            "stage": inner["zero_stage"],
            **{name: {"device": inner.get(f"{name}_device", "none")} for name in OFFLOADS},
        }
        return _engine(engine_config, f"{where}: deepspeed_config")
    config = options.get("fsdp_config")
    config = config if isinstance(config, Mapping) else {}
    if options.get("fsdp") or config or str(options.get("distributed_type")) == "FSDP":
        return _fully_sharded(options, config, where)
    launched = "distributed_type" in options
    note = "no sharding is in the file: data parallelism; give the file that --config_file names for another"
    return {"plan.zero": 0}, [] if launched else [note]


OFFLOADS = ("offload_optimizer", "offload_param")


def _engine(part: Any, where: str) -> tuple[Facts, list[str]]:
    """Facts of ZeRO's part of DeepSpeed's configuration."""
    if not isinstance(part, Mapping):
        return {"plan.zero": 0}, []
    stage = part.get("stage", 0)
    if type(stage) is not int or not 0 <= stage <= 3:
        raise InputError(f"a stage from 0 to 3 is needed, found {shown(stage)}", f"{where}: stage")
    config = {
        f"{ZERO}.{name}.{key}": value
        for name in OFFLOADS
        if isinstance(part.get(name), Mapping)
        for key, value in part[name].items()
    }
    state = deepspeed_state(config, where)
    return {"plan.zero": stage, **{k: v for k, v in state.items() if k.startswith("plan.")}}, []


def _named(named: str, folder: Path, where: str) -> tuple[Facts, list[str]]:
    """Facts of the configuration beside the file, or of its name."""
    path = folder / named
    if exists(path) and path.is_file():
        data = yaml_of(read_text(path))
        return _engine(data.get(ZERO) if isinstance(data, Mapping) else None, f"{where}: deepspeed")
    name = Path(named).name.lower()
    match = re.search(r"(?:zero|z)[-_]?([0-3])", name)
    if match is None or MORE_THAN_A_STAGE.search(name.replace("https", "")):
        raise InputError(f"{named}: DeepSpeed's configuration is not beside the file", f"{where}: deepspeed")
    note = f"{named} is not beside the file: its name says stage {match[1]}"
    if "offload" not in name:
        return {"plan.zero": int(match[1])}, [note]
    kinds = OFFLOADS if match[1] == "3" else OFFLOADS[:1]
    facts, _ = _engine({"stage": int(match[1]), **{kind: {"device": "cpu"} for kind in kinds}}, where)
    return facts, [f"{note}, with states on the host"]


def _fully_sharded(options: Options, config: Mapping[str, Any], where: str) -> tuple[Facts, list[str]]:
    """Facts of FSDP: its strategy, and everything on the host where parameters are offloaded."""

    def word_of(name: str) -> str:
        return str(config.get(f"fsdp_{name}", config.get(name, options.get(f"fsdp_{name}", "")))).lower()

    listed = options.get("fsdp")
    stated = " ".join(map(str, listed)) if isinstance(listed, list) else str(listed or "")
    choices = stated.lower().split()
    strategies = [word for word in choices if word in STRATEGIES or word in HYBRID]
    strategy = next(iter(strategies), word_of("sharding_strategy") or word_of("reshard_after_forward"))
    if strategy in HYBRID:
        problem = "shards inside groups: state the plan with shard_group, or a strategy of one group"
        raise InputError(f"{strategy} {problem}", f"{where}: fsdp_sharding_strategy")
    stage = 2 if word_of("reshard_after_forward") == "false" else STRATEGIES.get(strategy, 3)
    facts: Facts = {"plan.zero": stage}
    if word_of("offload_params") == "true" or "offload" in choices:
        facts["plan.place"] = {kind: {"host": 1.0} for kind in EVERYTHING}
        facts["plan.update"] = {"on": "host"}
    if word_of("activation_checkpointing") == "true":
        facts["plan.recompute"] = "full"
    return facts, []
