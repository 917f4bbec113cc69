"""Axolotl: its YAML, with adapters on weights in 16 bits, int8 or NF4."""

from __future__ import annotations

from typing import Any

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.tuning import BITSANDBYTES, MODEL, NOTES, batches, modules, tuning_gaps, yaml_lines

VERSION = "axolotl 0.19"
FILE, SCRIPT = "axolotl.yaml", "launch.sh"


def write(question: ExportQuestion) -> Export:
    """The configuration and the command, with their gaps."""
    scenario, plan = question.training()
    setting = scenario.setting
    split, adapter = batches(setting, plan), setting.training.adapter
    keys: dict[str, Any] = {
        "base_model": MODEL,
        "datasets": [{"path": "DATASET", "type": "chat_template"}],
        "sequence_len": setting.training.seq_len,
        "sample_packing": True,
        "micro_batch_size": split["micro_batch"],
        "gradient_accumulation_steps": split["accumulation"],
        "gradient_checkpointing": plan.recompute != "none",
        "bf16": True,
        "attn_implementation": "flash_attention_2",
        "optimizer": "adamw_torch_fused",
        "learning_rate": 2e-4 if adapter else 2e-5,
        "num_epochs": 1,
        "output_dir": "out",
    }
    if adapter is not None:
        keys |= {"adapter": "qlora" if adapter.base == "nf4" else "lora"}
        keys |= {"lora_r": adapter.rank, "lora_alpha": 2 * adapter.rank}
        keys |= {"lora_target_modules": modules(adapter)}
        if adapter.base in BITSANDBYTES:
            keys[BITSANDBYTES[adapter.base]] = True
    if plan.zero == 3:
        keys |= {"fsdp_version": 2, "fsdp_config": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}}
    gaps = tuple(tuning_gaps(question, "axolotl"))
    title = commented(header(question, VERSION, gaps, NOTES))
    script = (
        "#!/usr/bin/env bash\n"
        + title
        + f'set -euo pipefail\n\naxolotl train "$(dirname "$0")/{FILE}" "$@"\n'
    )
    return Export({FILE: title + yaml_lines(keys), SCRIPT: script}, gaps, NOTES, f"bash {SCRIPT}")


EXPORTER = Exporter("axolotl", "Axolotl", ("training",), write)
