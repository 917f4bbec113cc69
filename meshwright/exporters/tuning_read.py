"""Fine-tuning files as facts of a plan: Axolotl, LLaMA-Factory, TRL and Accelerate.

All four drive transformers' Trainer. Defaults are those of LLaMA-Factory's arguments (data_args.py,
finetuning_args.py), TRL's SFTConfig and Axolotl's configuration reference.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from core.errors import InputError, UnknownNameError, shown
from core.loading import exists
from core.parsing import read_text
from meshwright.exporters.base import Launch
from meshwright.exporters.shell import expanded_commands, read_options
from meshwright.exporters.table import Facts, Options
from meshwright.exporters.tuning import MODEL
from meshwright.exporters.tuning_sharding import sharding, yaml_of

FRAMEWORK, FUSED = "trl", "unsloth"
KEYS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "axolotl": {
        "model": ("base_model",),
        "seq_len": ("sequence_len",),
        "micro": ("micro_batch_size",),
        "steps": ("gradient_accumulation_steps",),
        "rank": ("lora_r",),
        "targets": ("lora_target_modules",),
        "recompute": ("gradient_checkpointing",),
    },
    "llama-factory": {
        "model": ("model_name_or_path",),
        "seq_len": ("cutoff_len",),
        "micro": ("per_device_train_batch_size",),
        "steps": ("gradient_accumulation_steps",),
        "rank": ("lora_rank",),
        "targets": ("lora_target",),
    },
    "trl": {
        "model": ("model_name_or_path",),
        "seq_len": ("max_length", "max_seq_length"),
        "micro": ("per_device_train_batch_size",),
        "steps": ("gradient_accumulation_steps",),
        "rank": ("lora_r",),
        "targets": ("lora_target_modules",),
        "recompute": ("gradient_checkpointing",),
    },
    "accelerate": {},
}
"""Keys of each trainer by what they mean here."""
USUAL: Mapping[str, Mapping[str, Any]] = {
    "axolotl": {"micro": 1, "steps": 1, "recompute": False},
    "llama-factory": {
        "seq_len": 2048,
        "micro": 8,
        "steps": 1,
        "rank": 8,
        "targets": "all",
        "recompute": True,
    },
    "trl": {"seq_len": 1024, "micro": 8, "steps": 1, "rank": 16, "recompute": True},
    "accelerate": {},
}
"""Defaults of the trainers."""
QUERIES = {"q_proj", "k_proj", "v_proj", "qkv_proj", "W_pack", "query_key_value"}
ATTENTION = {"o_proj", "dense", "out_proj"}
MLP = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2"}
READ = re.compile(
    r"^(adapter|load_in_[48]bit|quantization_bit|quantization_method|bits|bf16|fp16|tf32|pure_bf16|deepspeed|fsdp.*"
    r"|finetuning_type|stage|use_peft|use_unsloth|unsloth_.*|lora_target_linear|sample_packing|packing|neat_packing"
    r"|num_processes|num_machines|mixed_precision|distributed_type|deepspeed_config.*|optimizer|optim"
    r"|disable_gradient_checkpointing|use_lora|tensor_parallel_size|context_parallel_size|use_qlora|dtype|torch_dtype"
    r"|sequence_parallel_(size|degree|mode)|expert_parallel_size|dp_(shard|replicate)_size|attn_implementation|flash_attn"
    r"|plugins|cut_cross_entropy)$"
)
DECIDING = re.compile(
    r"paral|optim|quant|offload|galore|badam|apollo|lomo|relora|lisa|spectrum|freeze|unfrozen|liger|flash|sdpa|attn"
    r"|attention|xformers|fp8|packing|shard|zero|moe|expert|reentrant|dora|rslora|peft|distill|reward|dpo|ppo|kto|orpo|rl$|tiled"
)
LIGER = {
    "liger_fused_linear_cross_entropy": {"plan.cross_entropy": "chunked"},
    "liger_cross_entropy": {"plan.cross_entropy": "fused"},
    "liger_rope": {"plan.elementwise": "fused"},
    "liger_glu_activation": {"plan.elementwise": "fused"},
    "liger_swiglu": {"plan.elementwise": "fused"},
    "liger_rms_norm": {},
    "liger_rms_norm_gated": {},
    "liger_layer_norm": {},
    "enable_liger_kernel": {"plan.cross_entropy": "chunked", "plan.elementwise": "fused"},
    "use_liger_kernel": {"plan.cross_entropy": "chunked", "plan.elementwise": "fused"},
}
"""Kernels of Liger (linkedin/Liger-Kernel, transformers/monkey_patch.py) as fields of a plan."""
HARMLESS = re.compile(
    r"^(optim_args|optimizer_args|flash_attention|sdp_attention|use_reentrant|peft_use_rslora|min_sample_len"
    r"|gradient_checkpointing_kwargs|eval_sample_packing|pad_to_sequence_len|optim_target_modules|dispatch_batches"
    r"|fsdp_transformer_layer_cls_to_wrap|peft_init_lora_weights|sample_packing_.*"
    r"|rl_beta|lora_.*|multipack_.*|pad_.*)$"
)


STARTS = re.compile(
    r"(?:axolotl\s+train|llamafactory-cli\s+train|train_bash\.py|trl\s+sft|axolotl\.cli\.train)\b"
)
DEVICES = re.compile(r"--(?:num_processes|nproc[-_]per[-_]node|num_gpus)[= ](\d{1,6})")
VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES=(\d{1,3}(?:,\d{1,3}){0,63})\b")
FACTS = {"seq_len": "workload.seq_len", "micro": "plan.micro_batch", "steps": "derived.micro_batches"}


class Tuning(NamedTuple):
    """A fine-tuning file, read."""

    trainer: str
    facts: Facts
    launch: Launch
    framework: str


def read_tuning(text: str, where: str, path: Path | None) -> Tuning | None:
    """The facts of a file or a command of a fine-tuning trainer; None of another kind.

    Raises:
        InputError: a key that changes the step and is not read, or a stage that is no fine-tuning.
    """
    folder = path.parent if path else Path()
    options, devices = _options(text, where, folder)
    trainer = _trainer(options)
    if trainer is None:
        return None
    options = _shared(options, where)
    known_keys = {key for keys in KEYS[trainer].values() for key in keys}
    for key, value in options.items():
        silent = (
            value in (None, False, "", [], {}) or key in known_keys or READ.match(key) or HARMLESS.match(key)
        )
        silent = silent or (key, value) == ("experts_implementation", "grouped_mm")
        silent = silent or key in LIGER or (key == "attention" and str(value).startswith(("flash", "sdpa")))
        if not silent and DECIDING.search(key):
            problem = "is not read, and may change the step; leave it out to predict the run without it"
            raise InputError(problem, f"{where}: {key}")
    named = {field: _first(options, keys) for field, keys in KEYS[trainer].items()}
    usual = USUAL[trainer]
    values = {**usual, **{field: value for field, value in named.items() if value is not None}}
    facts, notes = _facts(trainer, options, values, where, folder)
    count = options.get("num_processes")
    devices = devices or (int(str(count)) if str(count).isdigit() else None)
    left = {key: value for key, value in options.items() if key not in known_keys and not READ.match(key)}
    fused = str(options.get("use_unsloth", False)).lower() == "true"
    launch = Launch(_plain(left), devices, tuple(notes))
    return Tuning(trainer, facts, launch, FUSED if fused else FRAMEWORK)


def _plain(options: Options) -> Options:
    """Options as comments: nested values by their length alone."""
    return {
        key: value if isinstance(value, str | int | float | bool) else "..." for key, value in options.items()
    }


def _options(text: str, where: str, folder: Path) -> tuple[Options, int | None]:
    """Keys of a YAML file, or the options of a command and of the file that it names."""
    if isinstance(data := yaml_of(text), Mapping):
        return {str(key): value for key, value in data.items()}, None
    for command in expanded_commands(text, where) if STARTS.search(text) else ():
        start = STARTS.search(command)
        if start is None:
            continue
        try:
            words = shlex.split(command[start.end() :])
        except ValueError as error:
            raise InputError(f"not readable as a command line ({error})", where) from None
        options = {key.removeprefix("--").replace("-", "_"): v for key, v in read_options(words).items()}
        named = options.pop("config", None) or next(
            (w for w in words[:1] if w.endswith((".yaml", ".yml"))), None
        )
        if isinstance(named, str):
            options = {**_file(folder / named, where), **options}
        launcher, visible = DEVICES.search(command), VISIBLE.search(text)
        seen = len(visible[1].split(",")) if visible else None
        return options, int(launcher[1]) if launcher else seen
    return {}, None


def _file(path: Path, where: str) -> Options:
    if not exists(path):
        raise InputError(f"{path.name}: the configuration is not beside the launch file", where)
    data = yaml_of(read_text(path))
    if not isinstance(data, Mapping):
        raise InputError("a mapping of keys is needed", str(path))
    return {str(key): value for key, value in data.items()}


def _trainer(options: Options) -> str | None:
    if "base_model" in options and {"sequence_len", "micro_batch_size", "adapter"} & options.keys():
        return "axolotl"
    if "model_name_or_path" in options:
        factory = {"finetuning_type", "cutoff_len", "stage", "template"} & options.keys()
        return "llama-factory" if factory else "trl"
    if "distributed_type" in options and "num_processes" in options:
        return "accelerate"
    return None


def _first(options: Options, keys: tuple[str, ...]) -> Any:
    return next((options[key] for key in keys if options.get(key) is not None), None)


def _facts(
    trainer: str, options: Options, values: Mapping[str, Any], where: str, folder: Path
) -> tuple[Facts, list[str]]:
    stage = str(options.get("stage", "sft")).lower()
    if trainer == "llama-factory" and stage not in ("sft", "pt"):
        raise InputError(
            f"stage {stage!r} has other models beside the trained one; pt and sft are read", f"{where}: stage"
        )
    shards, notes = sharding(options, where, folder)
    facts = _degrees(options, where)
    if (model := values.get("model")) not in (None, MODEL):
        facts["model.name"] = str(model)
    for field, fact in FACTS.items():
        if values.get(field) is not None:
            facts[fact] = values[field]
    precision = str(options.get("mixed_precision", "")).lower()
    wide = any(str(options.get(key, False)).lower() in ("true", "auto") for key in ("bf16", "pure_bf16"))
    half = str(options.get("fp16", False)).lower() == "true"
    facts["workload.precision"] = (
        "bf16" if wide or precision == "bf16" else "fp16" if half or precision == "fp16" else "bf16"
    )
    if trainer != "accelerate":
        again = values.get("recompute")
        off = str(options.get("disable_gradient_checkpointing", False)).lower() == "true"
        on = str(again).lower() in ("true", "unsloth", "offload") and not off
        facts["plan.recompute"] = "full" if on else "none"
    facts |= shards
    kernels = [key for key in LIGER if str(options.get(key, False)).lower() == "true"]
    for key in kernels:
        facts |= LIGER[key]
    if kernels:
        notes.append("Liger's norms are predicted as the trainer's own")
    adapter = _adapter(trainer, options, values, where)
    if adapter:
        facts["workload.adapter"] = adapter
    if states := _states(trainer, options, adapter is not None, where, notes):
        facts["plan.states"] = states
    if str(options.get("torch_compile", False)).lower() == "true":
        notes.append("torch_compile is left out: layers are predicted uncompiled")
    return facts, notes


SHARES = {
    "tp_size": "tensor_parallel_size",
    "cp_size": "context_parallel_size",
    "sp_size": "sequence_parallel_size",
    "dp_shard_size": "dp_shard_size",
    "dp_replicate_size": "dp_replicate_size",
    "cp_comm_strategy": "sequence_parallel_mode",
}
"""Keys of Accelerate's ``parallelism_config`` (1.10) as those of the trainers."""


def _shared(options: Options, where: str) -> Options:
    """Options with the degrees of Accelerate's ``parallelism_config``.

    Raises:
        InputError: a key of it that is not read.
    """
    config = options.get("parallelism_config")
    if not isinstance(config, Mapping):
        return options
    options = {key: value for key, value in options.items() if key != "parallelism_config"}
    options["sequence_parallel_mode"] = "allgather"  # torch's own default
    for key, value in config.items():
        name = str(key).removeprefix("parallelism_config_")
        if name not in SHARES:
            problem = "is not read, and may change the step; leave it out to predict the run without it"
            raise InputError(problem, f"{where}: parallelism_config.{key}")
        options[SHARES[name]] = value
    if (options.get("sequence_parallel_size") or 1) != 1:
        options["sequence_parallel_mode"] = "ulysses"
    return options


CONTEXT = ("context_parallel_size", "sequence_parallel_size", "sequence_parallel_degree")
"""Ranks that share a sequence: Axolotl, LLaMA-Factory's forks, Axolotl before 0.12."""
MODES = {"ulysses": "ulysses", "zigzag-ring": "ring", "ring": "ring", "llama3": "ring", "": "ring"}
MODES |= {"allgather": "all_gather", "alltoall": "ring"}
"""Algorithms of LLaMA-Factory's ``sequence_parallel_mode`` and of Accelerate's ``cp_comm_strategy``."""


def _degrees(options: Options, where: str) -> Facts:
    """Degrees of a plan, the attention kernel, and losses of plugins.

    Raises:
        InputError: a mode of shared sequences that no plan states.
    """
    ranks = next((options[key] for key in CONTEXT if options.get(key)), 1)
    facts: Facts = {"plan.tensor": options.get("tensor_parallel_size") or 1, "plan.context": ranks}
    mode = str(options.get("sequence_parallel_mode") or "").lower()
    if mode not in MODES:
        raise UnknownNameError(
            "mode", mode, [name for name in MODES if name], f"{where}: sequence_parallel_mode"
        )
    if ranks != 1 and mode:
        facts["plan.context_algorithm"] = MODES[mode]
    if expert := options.get("expert_parallel_size"):
        facts["plan.expert"] = expert
    if (options.get("dp_replicate_size") or 1) != 1 and options.get("dp_shard_size"):
        facts["plan.shard_group"] = options["dp_shard_size"]
    kernel = str(options.get("attn_implementation", options.get("flash_attn", ""))).lower()
    if kernel in ("eager", "disabled"):
        facts["plan.attention"] = "unfused"
    if (
        "cut_cross_entropy" in str(options.get("plugins", ""))
        and options.get("cut_cross_entropy") is not False
    ):
        facts["plan.cross_entropy"] = "chunked"
    return facts


def _adapter(trainer: str, options: Options, values: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """Adapters of the workload; None where all parameters train.

    Raises:
        InputError: adapters of another kind than LoRA, or a rank that is no number.
    """
    kind = str(options.get("adapter" if trainer == "axolotl" else "finetuning_type", "") or "").lower()
    if trainer == "trl":
        kind = "lora" if str(options.get("use_peft", False)).lower() == "true" else "full"
    if trainer == "accelerate" or kind in ("", "full", "none"):
        return None
    if kind not in ("lora", "qlora"):
        raise InputError(f"adapters of the kind {kind!r} are not predicted; lora and qlora are", where)
    rank = values.get("rank")
    if not str(rank).isdigit() or int(str(rank)) == 0:
        raise InputError(f"rank of adapters: a whole number is needed, found {shown(rank)}", where)
    bits = str(options.get("quantization_bit", options.get("bits", "")))
    four = kind == "qlora" or bits == "4" or str(options.get("load_in_4bit", False)).lower() == "true"
    eight = bits == "8" or str(options.get("load_in_8bit", False)).lower() == "true"
    adapter: dict[str, Any] = {"rank": int(str(rank))}
    if four or eight:
        adapter["base"] = "nf4" if four else "int8"
    targets = _targets(values.get("targets"), str(options.get("lora_target_linear", False)).lower() == "true")
    if targets != ["attention", "mlp"]:
        adapter["targets"] = targets
    return adapter


def _targets(listed: Any, linear: bool) -> list[str]:
    names = listed if isinstance(listed, list) else re.split(r"[\s,]+", str(listed or ""))
    words = {str(name).rpartition(".")[2] for name in names}
    if linear or not words - {""} or words & {"all", "all-linear"}:
        return ["attention", "mlp"]
    attention = "attention" if words & ATTENTION else "query_key_value" if words & QUERIES else ""
    return [target for target in (attention, "mlp" if words & MLP else "") if target] or ["attention", "mlp"]


def _states(trainer: str, options: Options, adapted: bool, where: str, notes: list[str]) -> str:
    """Formats of the optimizer's state: of 8 bits beside weights of 16, as Axolotl trains; empty as usual.

    Raises:
        InputError: such an optimizer of all parameters.
    """
    key = "optimizer" if "optimizer" in options else "optim"
    name = str(options.get(key) or "adamw_torch").lower()
    if (name.startswith("adamw") and "8bit" not in name and "4bit" not in name) or name in ("adam", "auto"):
        return ""
    if adapted:
        notes.append(f"{name}: the states of adapters are small and taken in 32 bits")
        return ""
    pure = trainer == "axolotl" or str(options.get("pure_bf16", False)).lower() == "true"
    if pure and "adamw" in name and "8bit" in name:
        return "paged-8-bit" if name.startswith("paged") else "8-bit"
    problem = f"{name!r} has other state than Adam in 32 bits; leave it out to predict with AdamW"
    raise InputError(problem, f"{where}: {key}")
