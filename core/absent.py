"""Names that people ask for and that no catalogue has: one sentence each on what there is instead."""

from __future__ import annotations

import re

KINDS = frozenset(
    {
        *("model", "framework", "cluster", "device", "device or cluster"),
        *("engine", "engine preset", "export target"),
    }
)
"""Kinds of names that are looked up."""
HARDWARE = "cluster", "device", "device or cluster"
COUNTED = re.compile(
    r"(?P<before>\d+) ?[x*] ?(?P<last>[a-zA-Z]\S*)|(?P<first>[a-zA-Z]\S*?) ?[x*:] ?(?P<after>\d+)"
)
"""A number of devices written into a name: 8xH100, h100:8, dgx-h100x8."""
PRICED = re.compile(r"(?P<named>[\w.-]+)@(?P<usd>\d+(\.\d+)?)")
"""A price written into a name: dgx-h100@2.5, as serving's types have it."""
ABSENT = {
    r"(flan-)?(u?m)?t5|bart|ul2|whisper|pegasus|opus-mt|nllb|m2m": "a config.json of its family is read "
    "and served, --engine transformers; --osl 0 prices the encoder",
    r"(distil|de|ro)?berta?|bge|e5|gte|electra": "`meshwright show models bert` lists encoders; "
    "another's config.json is read",
    r"gemma-?3n": "its several streams of residuals and predicted sparsity are not modelled",
    r"sd|sdxl|stable-diffusion|flux|wan|cogvideox?|pixart|sana|hunyuan-(dit|video)|qwen-image": "it is asked "
    "with kind: diffusion, or plan serve --images",
    r"vit|clip|dino": "a config.json of ViT is read; other vision encoders alone are not",
    r"mamba|falcon-?mamba|rwkv": "state-space models without attention are not there; hybrids are",
    r"tpu|trillium|ironwood|v5e|v5p": "TPU is not there; a device of your own: docs/extending.md",
    r"trainium|trn|inferentia|inf2": "Trainium is not there; a device of your own: docs/extending.md",
    r"groq|cerebras|sambanova|tenstorrent": "it is not there; a device of your own: docs/extending.md",
    r"verl|openrlhf|areal|slime": "systems of post-training are asked with kind: rl (docs/rl.md)",
    r"tgi|lmdeploy|mlc|llama\.?cpp|ollama|mii": "engines are vllm, sglang and tensorrt-llm",
    r"helm|ray-?serve": "on Kubernetes: --to k8s, --to kserve, --to dynamo or --to llm-d",
    r"unsloth": "the nearest are trl and axolotl",
    r"colossal|llama-?factory": "the nearest are trl, torch-fsdp-eager and megatron-core",
}
"""Beginnings of names, as regular expressions, and what is said."""


def absent(kind: str, name: str) -> str:
    """What is said of a name that no catalogue has; empty where nothing is known of it."""
    if kind not in KINDS:
        return ""
    if counted := COUNTED.fullmatch(name.strip()) if kind in HARDWARE else None:
        count, named = counted["before"] or counted["after"], counted["first"] or counted["last"]
        return f"a number of GPUs stands apart: {named} with --gpus {count}, or {named}={count} among types"
    if kind in HARDWARE and (with_price := PRICED.fullmatch(name.strip())):
        return f"a price stands apart: {with_price['named']} with --price {with_price['usd']}"
    last = name.lower().rpartition("/")[2]
    return next((words for pattern, words in ABSENT.items() if re.match(rf"({pattern})(?![a-z])", last)), "")
