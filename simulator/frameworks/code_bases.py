"""Code bases: frameworks that are releases or recipes of one program."""

from collections.abc import Mapping

CODE_BASES: Mapping[str, tuple[str, ...]] = {
    "Megatron Core": ("megatron-core", "megatron-bridge", "nemo", "primus"),
    "Megatron-LM": ("megatron-lm-2021", "megatron-lm-2022", "megatron-lm-2022-rocm5"),
    "Megatron-DeepSpeed": (
        "megatron-deepspeed",
        "megatron-deepspeed-openllm",
        "megatron-deepspeed-rocm5",
        "megatron-deepspeed-wheels",
        "megatron-deepspeed-wheels-2022-02",
    ),
    "GPT-NeoX": ("gpt-neox", "gpt-neox-rocm5"),
    "DeepSpeed": ("deepspeed-zero1", "deepspeed-zero3", "deepspeed-zero3-2021"),
    "torchtitan": ("torchtitan", "torchtitan-eager"),
    "FSDP": ("torch-fsdp", "torch-fsdp-eager", "verl-fsdp"),
    "prime-rl": ("prime-rl", "prime-rl-eager", "prime-rl-loop", "prime-rl-sft"),
    "KempnerForge": ("kempnerforge", "kempnerforge-eager"),
}
"""Frameworks that are releases or recipes of one code base; any other is its own."""


def code_base(framework: str) -> str:
    """The code base of a framework's release."""
    return next((name for name, members in CODE_BASES.items() if framework in members), framework)
