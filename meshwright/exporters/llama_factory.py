"""LLaMA-Factory: its YAML, with adapters on weights in 16 bits, int8 or NF4.

Keys as in its arguments (hiyouga/LLaMA-Factory: src/llamafactory/hparams/finetuning_args.py, model_args.py,
data_args.py) and examples (examples/train_lora, examples/train_qlora).
"""

from __future__ import annotations

from typing import Any

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.tuning import MODEL, NOTES, batches, modules, tuning_gaps, yaml_lines

VERSION = "LLaMA-Factory 0.9"
FILE, SCRIPT = "train.yaml", "launch.sh"
BITS = {"nf4": 4, "int8": 8}
"""``quantization_bit`` by format of the frozen weights."""


def write(question: ExportQuestion) -> Export:
    """The configuration and the command, with their gaps."""
    scenario, plan = question.training()
    setting = scenario.setting
    split, adapter = batches(setting, plan), setting.training.adapter
    keys: dict[str, Any] = {
        "model_name_or_path": MODEL,
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full" if adapter is None else "lora",
        "dataset": "DATASET",
        "template": "TEMPLATE",
        "cutoff_len": setting.training.seq_len,
        "packing": True,
        "per_device_train_batch_size": split["micro_batch"],
        "gradient_accumulation_steps": split["accumulation"],
        "disable_gradient_checkpointing": plan.recompute == "none",
        "bf16": True,
        "flash_attn": "fa2",
        "optim": "adamw_torch_fused",
        "learning_rate": 2e-5 if adapter is None else 2e-4,
        "num_train_epochs": 1.0,
        "output_dir": "out",
    }
    if adapter is not None:
        keys |= {"lora_rank": adapter.rank, "lora_alpha": 2 * adapter.rank}
        keys |= {"lora_target": ",".join(modules(adapter))}
        if adapter.base in BITS:
            keys |= {"quantization_bit": BITS[adapter.base], "quantization_method": "bnb"}
    notes = (*NOTES, "the chat template, in place of TEMPLATE")
    gaps = [*tuning_gaps(question, "llama-factory")]
    if plan.zero > 0:
        gaps.append(f"plan.zero = {plan.zero}: a DeepSpeed file (key deepspeed) shards the state")
    title = commented(header(question, VERSION, tuple(gaps), notes))
    script = (
        "#!/usr/bin/env bash\n"
        + title
        + f'set -euo pipefail\n\nllamafactory-cli train "$(dirname "$0")/{FILE}" "$@"\n'
    )
    return Export({FILE: title + yaml_lines(keys), SCRIPT: script}, tuple(gaps), notes, f"bash {SCRIPT}")


EXPORTER = Exporter("llama-factory", "LLaMA-Factory", ("training",), write)
