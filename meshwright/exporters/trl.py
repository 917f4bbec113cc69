"""TRL: the YAML of ``trl sft --config``, with PEFT's adapters and bitsandbytes."""

from __future__ import annotations

from typing import Any

from meshwright.exporters.base import Export, Exporter, ExportQuestion, commented, header
from meshwright.exporters.tuning import BITSANDBYTES, MODEL, NOTES, batches, modules, tuning_gaps, yaml_lines

VERSION = "trl 1.16"
FILE, SCRIPT = "sft.yaml", "launch.sh"


def write(question: ExportQuestion) -> Export:
    """The configuration and the command, with their gaps."""
    scenario, plan = question.training()
    setting = scenario.setting
    devices, split = setting.cluster.devices, batches(setting, plan)
    keys: dict[str, Any] = {
        "model_name_or_path": MODEL,
        "dataset_name": "DATASET",
        "dtype": "bfloat16",
        "attn_implementation": "sdpa",
        "max_length": setting.training.seq_len,
        "packing": True,
        "per_device_train_batch_size": split["micro_batch"],
        "gradient_accumulation_steps": split["accumulation"],
        "gradient_checkpointing": plan.recompute != "none",
        "output_dir": "out",
    }
    adapter = setting.training.adapter
    if adapter is not None:
        keys |= {"use_peft": True, "lora_r": adapter.rank, "lora_alpha": 2 * adapter.rank}
        keys |= {"lora_target_modules": modules(adapter)}
        if adapter.base in BITSANDBYTES:
            keys[BITSANDBYTES[adapter.base]] = True
        if adapter.base == "nf4":
            keys |= {"bnb_4bit_quant_type": "nf4", "use_bnb_nested_quant": True}
    gaps = tuple(tuning_gaps(question, "trl"))
    notes = (*NOTES, "packing joins documents to max_length; the prediction has no padding")
    shared = "fsdp2" if plan.zero == 3 else "multi_gpu" if devices > 1 else "single_gpu"
    title = commented(header(question, VERSION, gaps, notes))
    script = (
        "#!/usr/bin/env bash\n" + title + "set -euo pipefail\n\n"
        f'trl sft --config "$(dirname "$0")/{FILE}" --accelerate_config {shared} '
        f'--num_processes {min(devices, setting.cluster.devices_per_node)} "$@"\n'
    )
    return Export({FILE: title + yaml_lines(keys), SCRIPT: script}, gaps, notes, f"bash {SCRIPT}")


EXPORTER = Exporter("trl", "TRL's SFT with PEFT", ("training",), write)
