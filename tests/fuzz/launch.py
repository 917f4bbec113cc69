"""Kinds of broken launch files, exports, mixes of GPU types, and what-ifs of flags."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.fuzz import serving, training
from tests.fuzz.case import Case, Kind, from_data, word
from tests.fuzz.mutate import ODD, broken

MEGATRON = """#!/usr/bin/env bash
GPUS_PER_NODE=8
MODEL_ARGS=(
    --num-layers 12
    --hidden-size 768
    --num-attention-heads 12
    --ffn-hidden-size 3072
    --vocab-size 50304
    --max-position-embeddings 2048
    --swiglu
    --normalization RMSNorm
    --position-embedding-type rope
)
PLAN_ARGS=(
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2
    --micro-batch-size 1
    --use-distributed-optimizer
    --recompute-granularity selective
)
torchrun --nnodes 1 --nproc-per-node $GPUS_PER_NODE pretrain_gpt.py ${MODEL_ARGS[@]} ${PLAN_ARGS[@]} \\
    --seq-length 1024 --global-batch-size 32 --bf16
"""
DEEPSPEED = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 5e8},
}
TORCHTITAN = """[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 1
seq_len = 8192
steps = 10

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
pipeline_parallel_degree = 1

[activation_checkpoint]
mode = "selective"
"""
TARGETS = (
    "megatron-lm",
    "bridge",
    "deepspeed",
    "torchtitan",
    "vllm",
    "sglang",
    "trtllm",
    "dynamo",
    "slurm",
    "k8s",
)


def _imported(random: Random) -> Case:
    """A launch file with words changed, and the flags that say the rest."""
    name, text = random.choice(
        (
            ("train.sh", MEGATRON),
            ("ds_config.json", json.dumps(DEEPSPEED, indent=1)),
            ("train.toml", TORCHTITAN),
        )
    )
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        text = _word_changed(text, random) if random.random() < 0.7 else broken(text, random)
    arguments = ["import", name, "--cluster", "dgx-h100"]
    said = {"--gpus": "8", "--model": "gpt2", "--seq-len": "1024", "--global-batch": "32", "-o": "out/s.yaml"}
    for flag, value in said.items():
        if random.random() < 0.6:
            arguments += [flag, value if random.random() < 0.9 else word(random.choice(ODD))]
    return Case(tuple(arguments), {name: text})


def _word_changed(text: str, random: Random) -> str:
    lines = text.split("\n")
    chosen = random.randrange(len(lines))
    words = lines[chosen].split(" ")
    words[random.randrange(len(words))] = word(random.choice(ODD)).replace("\n", " ")
    lines[chosen] = " ".join(words)
    return "\n".join(lines)


def _mixes(random: Random) -> Case:
    types = (
        "l4",
        "a100-sxm-80gb=8",
        "h100-sxm@2.5",
        "l4=1",
        "h200-sxm",
        "x",
        "l4=0",
        "l4@nan",
        "l4@1e30",
        "a10g=4@1",
    )
    flags = {
        "--model": ("llama3.1-8b", "gpt2"),
        "--types": (",".join(random.sample(types, random.randrange(1, 4))),),
        "--isl": ("1000", "200", "0", "200000"),
        "--osl": ("100", "20", "0"),
        "--rate": ("4", "20", "0", "1e9", "nan", "1e-9"),
        "--ttft": ("0.5", "2", "1e-9"),
        "--tpot": ("0.05", "0.1", "0"),
        "--watts": ("5000", "1000000", "nan", "-1"),
    }
    arguments = ["plan", "mix", "--model", "llama3.1-8b"]
    for flag, values in flags.items():
        if flag != "--watts" or random.random() < 0.3:
            value = random.choice(values[:2] if random.random() < 0.8 else values)
            arguments += [flag, value if random.random() < 0.96 else word(random.choice(ODD))]
    return Case((*arguments, *(["--json"] if random.random() < 0.5 else [])))


COMMAND = (
    *("torchrun", "--nnodes", "1", "--nproc-per-node", "8", "-m", "torchtitan.train"),
    *("--module", "llama3", "--config", "llama3_8b", "--training.local_batch_size", "1"),
    *("--parallelism.tensor_parallel_degree", "2"),
)


def _commands(random: Random) -> Case:
    """Launch commands given as a text, with words changed."""
    words = [*COMMAND]
    for _ in range(random.choice((0, 1, 1, 2))):
        words[random.randrange(len(words))] = word(random.choice((*ODD, *COMMAND)))
    return Case(("import", " ".join(words), "--cluster", "dgx-h100"))


FOUND = {
    "question": {
        "model": "gpt2",
        "cluster": "dgx-a100-80gb",
        "gpus": 8,
        "framework": "megatron-core",
        "seq_len": 1024,
        "global_batch": 16,
        "precision": "bf16",
    },
    "plans": [{"plan": {"tensor": 2, "data": 4, "zero": 1}}, {"plan": {"pipeline": 2, "data": 4}}],
}
DEPLOYED = {
    "question": {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 4,
        "prompt_tokens": 1000,
        "output_tokens": 100,
        "ttft": 0.5,
        "tpot": 0.05,
        "rate": 4.0,
    },
    "deployments": [{"gpus": 2, "rate": 9.5, "deployment": {"engine": "vllm-0.19", "tensor": 2}}],
}
"""What `plan --json` prints, shortened to what `export` reads."""


ASKED = (
    *("whatif", "--model", "gpt2", "--cluster", "dgx-a100-80gb", "--gpus", "8"),
    *("--seq-len", "1024", "--global-batch", "16"),
)
CHANGES = {
    "cluster.network.nic_gbps": ("100", "100,400"),
    "gpus": ("16", "8,16"),
    "workload.global_batch": ("32", "16,64"),
    "plan.micro_batch": ("2", "1,2"),
    "model.layers": ("24", "8,16"),
    "x.y": ("1", "1,2"),
    "": ("", ","),
    "a..b": ("1..3", "nan"),
}


def _whatif(random: Random) -> Case:
    """What-ifs of flags alone."""
    fixed = random.choice(("tensor=2", "pipeline=2", "zero=3", "tensor=2", "pipeline=2", "x=1"))
    arguments = [*ASKED, "--fix", fixed]
    for _ in range(random.randrange(1, 3)):
        key = random.choice([*list(CHANGES)[:5] * 3, *CHANGES])
        flag = random.randrange(2)
        odd = word(random.choice((*ODD, "1e18", "[1", "null")))
        value = CHANGES[key][flag] if random.random() < 0.75 else odd
        arguments += [("--set", "--sweep")[flag], f"{key}={value}"]
    return Case((*arguments, *random.choice(([], ["--json"], ["--html", "out/page.html"]))))


def _exports(name: str, bases: list[dict[str, Any]], targets: tuple[str, ...]) -> Kind:
    commands = [["export", "FILE", "--to", target, "-o", "out"] for target in targets]
    return from_data([(name, data) for data in bases], commands)


KINDS: dict[str, Kind] = {
    "import-launch": _imported,
    "export-training": _exports("plan.yaml", training.BASES["scenarios"], TARGETS),
    "export-serving": _exports("serve.yaml", serving.BASES["servings"], TARGETS[4:]),
    "import-command": _commands,
    "export-found": from_data(
        [("found.json", FOUND), ("found.json", DEPLOYED)],
        [["export", "FILE", "--to", target, "--rank", "1", "-o", "out"] for target in TARGETS],
    ),
    "mixes": _mixes,
    "whatif-flags": _whatif,
}
