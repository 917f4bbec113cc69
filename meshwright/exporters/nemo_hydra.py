"""NeMo 1's Hydra overrides (``model.tensor_model_parallel_size=4``) as options of Megatron-LM.

NeMo 1 hands its configuration to Megatron Core (conf/megatron_gpt_config.yaml and
megatron_llama_config.yaml, 1.23), so that each key has an option of Megatron-LM's own script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from core.errors import InputError, shown
from meshwright.exporters.base import Launch
from meshwright.exporters.table import TYPING, Options

HINTS = ("model.micro_batch_size", "model.global_batch_size", "model.encoder_seq_length")
VALUES: Mapping[str, str] = MappingProxyType(
    {
        "num_layers": "--num-layers",
        "hidden_size": "--hidden-size",
        "ffn_hidden_size": "--ffn-hidden-size",
        "num_attention_heads": "--num-attention-heads",
        "num_query_groups": "--num-query-groups",
        "kv_channels": "--kv-channels",
        "encoder_seq_length": "--seq-length",
        "max_position_embeddings": "--max-position-embeddings",
        "micro_batch_size": "--micro-batch-size",
        "global_batch_size": "--global-batch-size",
        "tensor_model_parallel_size": "--tensor-model-parallel-size",
        "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
        "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
        "context_parallel_size": "--context-parallel-size",
        "expert_model_parallel_size": "--expert-model-parallel-size",
        "activations_checkpoint_granularity": "--recompute-granularity",
        "activations_checkpoint_method": "--recompute-method",
        "activations_checkpoint_num_layers": "--recompute-num-layers",
        "num_moe_experts": "--num-experts",
        "moe_router_topk": "--moe-router-topk",
        "position_embedding_type": "--position-embedding-type",
        "hidden_dropout": "--hidden-dropout",
        "attention_dropout": "--attention-dropout",
    }
)
"""Keys of ``model`` whose value is an option's."""
FLAGS: Mapping[tuple[str, str], Options] = MappingProxyType(
    {
        ("sequence_parallel", "true"): {"--sequence-parallel": True},
        ("activation", "swiglu"): {"--swiglu": True},
        ("activation", "fast-swiglu"): {"--swiglu": True},
        ("activation", "squared-relu"): {"--squared-relu": True},
        ("normalization", "rmsnorm"): {"--normalization": "RMSNorm"},
        ("bias", "false"): {"--disable-bias-linear": True},
        ("share_embeddings_and_output_weights", "false"): {"--untie-embeddings-and-output-weights": True},
        ("optim.name", "distributed_fused_adam"): {"--use-distributed-optimizer": True},
        ("optim.name", "mcore_distributed_optim"): {"--use-distributed-optimizer": True},
        ("overlap_p2p_comm", "false"): {"--no-overlap-p2p-communication": True},
        ("ub_tp_comm_overlap", "true"): {"--tp-comm-overlap": True},
        ("fp8", "true"): {"--fp8-format": "hybrid"},
        ("cross_entropy_loss_fusion", "true"): {"--cross-entropy-loss-fusion": True},
        ("optim.overlap_grad_sync", "true"): {"--overlap-grad-reduce": True},
        ("optim.overlap_param_sync", "true"): {"--overlap-param-gather": True},
    }
)
"""Options that a value of a key of ``model`` means."""
PRECISIONS: Mapping[str, Options] = MappingProxyType(
    {
        "bf16": {"--bf16": True},
        "bf16-mixed": {"--bf16": True},
        "16": {"--fp16": True},
        "16-mixed": {"--fp16": True},
    }
    | {"32": {}, "32-true": {}}
)
LLAMA: Options = {
    "activation": "fast-swiglu",
    "normalization": "rmsnorm",
    "bias": "false",
    "share_embeddings_and_output_weights": "false",
    "position_embedding_type": "rope",
    "hidden_dropout": "0.0",
    "attention_dropout": "0.0",
}
"""What megatron_llama_config.yaml states of a Llama's shape."""
UNREAD = (
    "data.",
    "tokenizer.",
    "optim.lr",
    "optim.weight_decay",
    "optim.betas",
    "optim.sched",
    "seed",
    "resume",
)
"""Keys of ``model`` that no prediction reads."""


def is_hydra(launch: Launch) -> bool:
    """Whether a launch overrides keys of NeMo 1."""
    return any(key in launch.options for key in HINTS)


def is_recipe(written: object) -> bool:
    """Whether a YAML file is a configuration of NeMo 1: a trainer and a model."""
    return isinstance(written, dict) and all(
        isinstance(written.get(key), dict) for key in ("trainer", "model")
    )


def flattened(written: Mapping[str, Any], path: str = "") -> Options:
    """Keys of a configuration as dotted names; values as Hydra writes them."""
    options: Options = {}
    for key, value in written.items():
        name = f"{path}{key}"
        value = _interpolated(value, written)
        if isinstance(value, dict):
            options |= flattened(value, f"{name}.")
        elif value is not None:
            options[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return options


OF_SIBLING = re.compile(r"\$\{(?:multiply:\s*(\d{1,6})\s*,\s*)?(?:\$\{)?\.(\w+)\}{1,2}")
"""A key beside this one, or a multiple of it: ``${multiply:4, ${.hidden_size}}``."""


def _interpolated(value: Any, beside: Mapping[str, Any]) -> Any:
    """A value that refers to a number beside it."""
    reference = OF_SIBLING.fullmatch(value.strip()) if isinstance(value, str) else None
    number = beside.get(reference[2]) if reference else None
    return int(reference[1] or 1) * number if reference and type(number) is int else value


def megatron_options(launch: Launch, where: str) -> Launch:
    """The launch with Megatron-LM's options in place of NeMo's keys.

    Raises:
        InputError: a key of the model that is not read, with what to do.
    """
    keys = {key.lstrip("+~"): str(value).strip("'\"") for key, value in launch.options.items()}
    model = {key.removeprefix("model."): value for key, value in keys.items() if key.startswith("model.")}
    if "llama" in launch.script.lower():
        model = {**LLAMA, **model}
    if model.get("fsdp", "false").lower() == "false":
        model = {key: value for key, value in model.items() if not key.startswith("fsdp")}
    options: Options = {}
    for key, value in model.items():
        if value.lower() in ("null", "none"):
            continue
        if key in VALUES:
            options[VALUES[key]] = value
        elif (key, value.lower()) in FLAGS:
            options |= FLAGS[key, value.lower()]
        elif any(key == named for named, _ in FLAGS):
            if value.lower() not in ("true", "false") and not key.startswith("optim."):
                raise InputError(
                    f"model.{key}: {shown(value)} is not read; state the plan's field with --fix", where
                )
        elif nearest := get_close_matches(key, VALUES, 1, TYPING):
            raise InputError(f"model.{key} is no key of NeMo; did you mean 'model.{nearest[0]}'?", where)
        elif not key.startswith(UNREAD):
            options[f"model.{key}"] = value
    if "--seq-length" in options:  # max_position_embeddings: ${.encoder_seq_length}
        options.setdefault("--max-position-embeddings", options["--seq-length"])
    if "--num-query-groups" in options:
        options["--group-query-attention"] = True
    precision = keys.get("trainer.precision", "bf16")
    if precision not in PRECISIONS:
        raise InputError(
            f"trainer.precision: {shown(precision)} is not read; it may be {', '.join(PRECISIONS)}", where
        )
    options |= PRECISIONS[precision]
    sizes = [keys.get(f"trainer.{name}", "") for name in ("devices", "num_nodes")]
    devices = launch.devices
    if sizes[0].isdigit() and len(sizes[0]) < 7:
        nodes = int(sizes[1]) if sizes[1].isdigit() and len(sizes[1]) < 7 else 1
        devices = int(sizes[0]) * nodes
    return replace(launch, options=options, devices=devices)
