"""DeepSpeed: its JSON configuration, and the command that starts a training script with it."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.parsing import parse_json, read_text
from meshwright.exporters.base import Export, Exporter, ExportQuestion, Launch, commented, header, nested
from meshwright.exporters.deepspeed_state import EXPRESSED, state_options
from meshwright.exporters.facts import check_derived, facts_of, micro_batches, question_gaps
from meshwright.exporters.shell import read_script
from meshwright.exporters.state_read import deepspeed_state
from meshwright.exporters.table import Facts, Options, integer, table

TABLE = "deepspeed-0.19.yaml"
FILE, SCRIPT = "ds_config.json", "launch.sh"
NOTES = (
    "the training script that builds the model and calls deepspeed.initialize",
    "optimizer and learning rate, in ds_config.json or in the script",
)
AUTO = "auto"
MICRO = "train_micro_batch_size_per_gpu"
INSIDE_REPLICAS = "tensor_parallel.autotp_size", "sequence_parallel_size", "pipeline.stages"


def write(question: ExportQuestion) -> Export:
    """The configuration, the launch script and their gaps."""
    scenario, plan = question.training()
    setting, launcher = scenario.setting, table(TABLE)
    facts = {
        name: value
        for name, value in facts_of(scenario, plan, launcher).items()
        if not name.startswith("model.")
    }
    facts["derived.micro_batches"] = micro_batches(setting, plan)
    gaps = [f"model = {setting.model.name}: the training script builds the model"]
    gaps.append(f"workload.seq_len = {setting.training.seq_len}: the training script cuts its data so")
    if plan.pipeline > 1:
        gaps.append(f"plan.pipeline = {plan.pipeline}: the training script builds its PipelineModule")
    if plan.zero == 3:
        facts["derived.prefetch"] = plan.overlap_parameters
    elif plan.zero and plan.overlap_parameters:
        gaps.append("plan.overlap_parameters = true: stages 1 and 2 gather parameters after the step")
    if plan.recompute == "full":
        gaps.append("plan.recompute = full: the model's code must call deepspeed.checkpointing.checkpoint")
    gaps += _shard_group(facts, plan.zero, plan.shard_group, plan.data * plan.context)
    options, more = launcher.write(facts)
    state, lacking = state_options(plan, setting.cluster)
    options |= state
    unexpressed = question_gaps(scenario, _framework(setting.framework.name), EXPRESSED)
    gaps = (*unexpressed, *gaps, *more, *lacking)
    check_derived(setting, plan, computed(options, setting.cluster.devices))
    nodes = setting.cluster.nodes_for(setting.cluster.devices)
    each = min(setting.cluster.devices_per_node, setting.cluster.devices)
    text = "#!/usr/bin/env bash\n" + commented(header(question, launcher.version, gaps, NOTES))
    text += "set -euo pipefail\n\nSCRIPT=${SCRIPT:?training script}\n"
    text += f'deepspeed --num_nodes {nodes} --num_gpus {each} --hostfile "${{HOSTFILE:-hostfile}}" \\\n'
    text += f'    "$SCRIPT" --deepspeed --deepspeed_config "$(dirname "$0")/{FILE}" "$@"\n'
    config = json.dumps(nested(options), indent=2) + "\n"
    return Export({FILE: config, SCRIPT: text}, gaps, NOTES, f"bash {SCRIPT}")


def _framework(predicted: str) -> str:
    """These files run any DeepSpeed framework."""
    return predicted if "deepspeed" in predicted else table(TABLE).framework


def _shard_group(facts: Facts, zero: int, group: int, ranks: int) -> list[str]:
    """Hybrid sharding is MiCS, which requires stage 3."""
    if not zero or group in (0, ranks):
        return []
    if zero == 3:
        facts["derived.shard_group"] = group
        return []
    return [f"plan.shard_group = {group}: MiCS shards stage 3 only"]


def computed(options: Options, devices: int) -> dict[str, int]:
    """DeepSpeed's own arithmetic (runtime/config.py: _configure_train_batch_size)."""
    ranks = prod(int(options.get(name, 1)) for name in INSIDE_REPLICAS)
    data = devices // ranks
    step = int(options["train_micro_batch_size_per_gpu"]) * int(options["gradient_accumulation_steps"]) * data
    return {"devices": ranks * data, "data": data, "global_batch": step}


def parse(text: str, where: str, path: Path | None) -> Launch:
    """The launch of a JSON configuration, or of a command with --deepspeed_config.

    Raises:
        InputError: neither of the two.
    """
    if text.lstrip().startswith("{"):
        data = parse_json(text, where)
        filled = sorted(_automatic(data))
        notes = (f"values that the trainer fills in (auto): {', '.join(filled)}",) if filled else ()
        return Launch(_flat(data), notes=notes, automatic=tuple(filled))
    launch = read_script(text, where)
    named = launch.options.get("--deepspeed_config") or launch.options.get("--deepspeed-config")
    if not isinstance(named, str):
        raise InputError("option --deepspeed_config is missing (the path of ds_config.json)", where)
    rest = {name: value for name, value in launch.options.items() if not name.startswith("--deepspeed")}
    file = (path.parent if path else Path()) / named.replace("$(dirname $0)/", "")
    data = parse_json(launch.files[named] if named in launch.files else read_text(file), str(file))
    filled = tuple(sorted(_automatic(data)))
    return Launch({**_flat(data), **rest}, launch.devices, launch.notes, automatic=filled)


def _flat(data: Any, path: str = "") -> Options:
    """Nested mappings as dotted names; ``auto``, which a trainer fills in, is left out."""
    if not isinstance(data, dict):
        return {} if data == AUTO else {path: data}
    options: Options = {}
    for key, value in data.items():
        options |= _flat(value, f"{path}.{key}" if path else str(key))
    return options


def _automatic(data: Any, path: str = "") -> list[str]:
    """Names of the values that are ``auto``."""
    if not isinstance(data, dict):
        return [path] if data == AUTO else []
    return [
        name
        for key, value in data.items()
        for name in _automatic(value, f"{path}.{key}" if path else str(key))
    ]


def read(launch: Launch, where: str) -> Facts:
    """Facts of a configuration.

    Raises:
        InputError: a value that is not a number or a device.
    """
    facts, _ = table(TABLE).read(launch.options)
    facts |= deepspeed_state(launch.options, where)
    if facts.get("plan.zero") == 3:
        facts["plan.overlap_parameters"] = facts["derived.prefetch"]
        if group := integer(facts, "derived.shard_group", where):
            facts["plan.shard_group"] = group
    elif facts.get("plan.zero"):
        facts["plan.overlap_parameters"] = False
    if (integer(facts, "plan.pipeline", where) or 1) > 1:
        facts["derived.framework"] = "megatron-deepspeed"
    elif facts.get("plan.zero") != 3:
        facts["derived.framework"] = "deepspeed-zero1"
    facts.pop("plan.overlap_pipeline", None)
    if {"bf16.enabled", "fp16.enabled"} & {*launch.automatic} and facts["workload.precision"] == "fp32":
        facts["workload.precision"] = AUTO
    _complete_batch(facts, launch, where)
    return facts


def _complete_batch(facts: Facts, launch: Launch, where: str) -> None:
    """The missing one of three batch sizes, as DeepSpeed computes it.

    Raises:
        InputError: the three sizes are inconsistent.
    """
    total, steps = (
        integer(facts, "workload.global_batch", where),
        integer(facts, "derived.micro_batches", where),
    )
    stated = MICRO in launch.options
    if MICRO in launch.automatic and None in (total, steps, launch.devices):
        problem = (
            "auto is what the trainer fills in (per_device_train_batch_size); write the value in its place"
        )
        raise InputError(problem, f"{where}: {MICRO}")
    micro = integer(facts, "plan.micro_batch", where) or 1
    if launch.devices is None or total is None:
        return
    ranks = prod(integer(facts, f"plan.{name}", where) or 1 for name in ("tensor", "context", "pipeline"))
    data = max(launch.devices // ranks, 1)
    if not stated and total % (data * (steps or 1)) == 0:
        facts["plan.micro_batch"] = max(total // (data * (steps or 1)), 1)
    elif stated and steps and micro * steps * data != total:
        product = f"{micro} x {steps} x {data} = {micro * steps * data}"
        raise InputError(
            f"micro batch x accumulation x data ranks = {product}, not train_batch_size {total}", where
        )


EXPORTER = Exporter(
    name="deepspeed",
    title="ds_config.json and launch script",
    kinds=("training",),
    write=write,
    read=read,
    parse=parse,
    table=TABLE,
    hints=(
        '"zero_optimization"',
        '"train_batch_size"',
        '"train_micro_batch_size_per_gpu"',
        "--deepspeed_config",
        '"stage"',
        "deepspeed --",
    ),
)
