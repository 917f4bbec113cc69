"""Trainers of adapters on transformers: TRL with PEFT, Axolotl and LLaMA-Factory.

The keys of each lie beside this module (`key_files`): adapters on weights in 16 bits, int8 or NF4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from meshwright.exporters.base import Export, Exporter, ExportQuestion
from meshwright.exporters.key_files import key_file
from meshwright.exporters.table import Facts
from simulator.plan import Plan
from simulator.setting import Setting

MODULES: Mapping[str, tuple[str, ...]] = {
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
    "experts": ("gate_proj", "up_proj", "down_proj"),
}
"""Linear modules of transformers' models by target (modeling_llama.py, modeling_qwen3.py)."""
BITSANDBYTES = ("nf4", "int8")
"""Formats of frozen weights."""
MODEL = "MODEL_NAME_OR_PATH"
"""Stands for the model's name on the hub, which the catalogue does not hold for every model."""
NOTES = (
    f"the model's name on Hugging Face or its folder, in place of {MODEL}",
    "the data set, its format, and the learning rate",
)


def batches(setting: Setting, plan: Plan) -> dict[str, int]:
    """Sequences that a device computes at once, and its turns in a step."""
    ranks = setting.cluster.devices
    each = max(setting.training.global_batch // (ranks * plan.micro_batch), 1)
    return {"micro_batch": plan.micro_batch, "accumulation": each}


def tuning_gaps(question: ExportQuestion, trainer: str) -> list[str]:
    """What the files of a trainer of adapters do not express."""
    scenario, plan = question.training()
    setting = scenario.setting
    gaps = [
        f"plan.{name} = {getattr(plan, name)}: {trainer} runs one replica or shard a device"
        for name in ("tensor", "pipeline", "context", "expert")
        if getattr(plan, name) > 1
    ]
    split = batches(setting, plan)
    step = split["micro_batch"] * split["accumulation"] * setting.cluster.devices
    if step != setting.training.global_batch:
        gaps.append(f"workload.global_batch = {setting.training.global_batch}: the files compute {step}")
    if plan.recompute == "selective":
        gaps.append("plan.recompute = selective: whole layers are computed again")
    if setting.framework.name not in ("trl", "unsloth", "torchtune"):
        gaps.insert(0, f"framework = {setting.framework.name}: these files run {trainer}")
    adapter = setting.training.adapter
    if adapter is not None and adapter.base not in ("bf16", "fp32", *BITSANDBYTES):
        gaps.append(f"workload.adapter.base = {adapter.base}: bitsandbytes has nf4 and int8")
    return gaps


def tuning_facts(setting: Setting, plan: Plan) -> Facts:
    """What the keys of trainers are made of."""
    devices, adapter = setting.cluster.devices, setting.training.adapter
    facts = {
        "seq_len": setting.training.seq_len,
        **batches(setting, plan),
        "recomputes": plan.recompute != "none",
        "keeps": plan.recompute == "none",
        "zero": plan.zero,
        "sharded": plan.zero == 3,
        "launcher": "fsdp2" if plan.zero == 3 else "multi_gpu" if devices > 1 else "single_gpu",
        "processes": min(devices, setting.cluster.devices_per_node),
        "adapter": adapter is not None,
        **{base: adapter is not None and adapter.base == base for base in BITSANDBYTES},
    }
    if adapter is not None:
        names = list(dict.fromkeys(name for target in adapter.targets for name in MODULES[target]))
        facts |= {"rank": adapter.rank, "alpha": 2 * adapter.rank}
        facts |= {"modules": names, "module_names": ",".join(names)}
    return facts


def write(target: str, question: ExportQuestion) -> Export:
    """The configuration of a trainer and the command, with their gaps."""
    scenario, plan = question.training()
    facts = tuning_facts(scenario.setting, plan)
    return key_file(target).launch(question, facts, tuning_gaps(question, target), NOTES, yaml_lines)


def yaml_lines(keys: Mapping[str, Any]) -> str:
    """Keys and values as YAML, one a line; values as JSON, which YAML reads."""
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items())


TITLES = {"trl": "TRL's SFT with PEFT", "axolotl": "Axolotl", "llama-factory": "LLaMA-Factory"}
EXPORTERS = {
    name: Exporter(name, title, ("training",), partial(write, name)) for name, title in TITLES.items()
}
