"""Kinds of broken training questions, catalogue files, measured points, traces of steps and flags."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.fuzz.case import ROOT, Case, Kind, drawn, from_data, from_text, word
from tests.fuzz.mutate import ODD, as_text
from tests.laws import questions
from tests.simulator.models.hf_configs import CONFIGS, PUBLISHED_2025

BASES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("bases.yaml").read_text(encoding="utf-8")
)


def named(name: str, kind: str) -> list[tuple[str, Any]]:
    """The valid inputs of a kind as files of one name."""
    return [(name, data) for data in BASES[kind]]


PLAN = [
    "plan",
    "--gpus",
    "8",
    "--seq-len",
    "1024",
    "--global-batch",
    "16",
    "--fix",
    "tensor=2",
    "--fix",
    "pipeline=1",
]
OF_A100 = [*PLAN, "--cluster", "dgx-a100-80gb"]
OF_GPT2 = [*PLAN, "--model", "gpt2"]
SIMULATE = (
    ["simulate", "FILE"],
    ["simulate", "FILE", "--json"],
    ["simulate", "FILE", "--engine", "--json"],
    ["simulate", "FILE", "--engine"],
    ["simulate", "FILE", "--html", "out/page.html"],
    ["simulate", "FILE", "--trace", "out/traces"],
    ["simulate", "FILE", "--trace", "out/trace.json.gz", "--json"],
)


def _framework() -> dict[str, Any]:
    return yaml.safe_load(
        (ROOT / "simulator" / "frameworks" / "megatron-core.yaml").read_text(encoding="utf-8")
    )


def cases_csv() -> str:
    columns = {
        "case_id": "one",
        "gpu": "a100-sxm-80gb",
        "n_gpus": 16,
        "n_layers": 24,
        "d_model": 2048,
        "n_heads": 16,
        "seq_len": 2048,
        "global_batch": 64,
        "micro_batch": 4,
        "tp": 2,
        "pp": 2,
        "cp": 1,
        "vpp": 1,
        "ep": 1,
        "precision": "bf16",
        "framework": "Megatron-LM",
        "derived_step_time_s": 2.0,
        "peak_memory_gib": 40,
        "gpus_per_node": 8,
        "nic_gbps_per_node": 1600,
        "zero_stage": 1,
        "n_kv_heads": 16,
        "d_ff": 8192,
        "vocab": 51200,
        "activation_recompute": "full",
        "pp_schedule": "1f1b",
        "n_experts": "",
        "top_k": "",
    }
    line = ",".join(map(str, columns.values()))
    return f"{','.join(columns)}\n{line}\n{line.replace('one', 'two')}\n"


def _points_csv() -> str:
    lines = [
        f"a100-sxm-80gb,bf16,forward,{m},{n},{k},{m * n * k / 1e8 + 5:.5g},0.02,lab"
        for m in (256, 1024, 4096)
        for n in (512, 2048)
        for k in (512, 4096)
    ]
    return "\n".join(["gpu,dtype,layout,m,n,k,time_us,spread,source", *lines, ""])


def _imports() -> list[tuple[str, str]]:
    common = "framework,version,device,op_name,kernel_source"
    gpu = "NVIDIA H100 80GB HBM3"
    gemm = f"{common},gemm_dtype,m,n,k,latency\nTRTLLM,1.0.0,{gpu},gemm,flow,bfloat16,4096,5120,4096,0.28\n"
    nccl = f"{common},nccl_dtype,num_gpus,message_size,latency\nnccl,2,{gpu},all_gather,x,half,8,524288,1\n"
    log = (
        "# nccl-tests version 2.17.6\n# Collective test starting: all_reduce_perf\n"
        "#  Rank  0 Group  0 Pid  1 on node-01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n"
        "#  Rank  1 Group  0 Pid  2 on node-02 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "     1048576  262144     float     sum    -1    55.12   19.02   28.53      0\n"
    )
    record = '{"numCycle":0,"name":"AllReduce","nodes":1,"ranks":8,"size":1048576,"type":"float","inPlace":0,'
    records = f'[{record}"time":76.26,"algBw":13.75,"busBw":20.63,"wrong":"0"}}]\n'
    logs = [("all_reduce.log", log), ("rccl.json", records)]
    return [("gemm_perf.txt", gemm), ("nccl_perf.txt", nccl), *logs]


FLAGS = {
    "--model": ("gpt2", "gpt3-175", "none.yaml", "meta-llama/Llama-3.1-70B"),
    "--cluster": ("dgx-a100-80gb", "dgx-h100", "nowhere"),
    "--gpus": ("8", "16", "17", "1"),
    "--seq-len": ("1024", "2048", "8k", "131072"),
    "--global-batch": ("16", "64", "1"),
    "--precision": ("bf16", "fp8", "int4"),
    "--framework": ("megatron-core", "torch-fsdp", "mine"),
    "--fix": ("tensor=2", "pipeline=1", "zero=1", "tensor", "tensr=1", "schedule=1f1b", "recompute=full"),
    "--limit": ("pipeline=2", "micro_batch=4", "x=y"),
    "--objective": ("time", "cost", "energy", "speed"),
    "--top": ("1", "5", "0"),
    "--refine": ("0", "1", "-1"),
}


def _flags(random: Random) -> Case:
    """The flags of `plan`, and words after other commands."""
    if random.random() < 0.2:
        command = random.choice(("show", "simulate", "whatif", "validate", "plan", "export", "calibrate"))
        words = (
            "models",
            "devices",
            "clusters",
            "gpt2",
            "--json",
            "--html",
            "--cases",
            "--live",
            "--engine",
            "-o",
        )
        chosen = [random.choice((*words, *map(word, ODD))) for _ in range(random.randrange(4))]
        kept = [word for word in chosen if word != "--live"]
        # Alone, it predicts every published run, as other tests have it do.
        return Case(("validate", "--help") if [command, *kept] == ["validate"] else (command, *kept))
    arguments = ["plan"]
    for flag, values in FLAGS.items():
        needed = flag in ("--model", "--cluster", "--gpus", "--seq-len", "--global-batch")
        if random.random() < (0.97 if needed else 0.15):
            usual = random.random() < 0.85
            value = random.choice(values[:2] if needed and usual else values)
            arguments += [flag, value if random.random() < 0.93 else word(random.choice(ODD))]
    return Case((*arguments, *(["--json"] if random.random() < 0.5 else [])))


def _sizes(random: Random) -> Case:
    """Sizes that are allowed one by one, up to the highest: products of several must not overflow."""
    heads = 2 ** random.randrange(15)
    shard = 2 ** random.randrange(5)
    scenario = {
        **BASES["scenarios"][0],
        "model": {
            **BASES["models"][random.randrange(2)],
            "layers": random.choice((shard, 2**6, 2**10)),
            "hidden": heads * 2 ** random.randrange(10),
            "heads": heads,
            "kv_heads": random.choice((1, heads)),
            "feed_forward": 2 ** random.randrange(5, 25),
            "vocabulary": 2 ** random.randrange(5, 25),
            "max_sequence": 2**27,
        },
        "cluster": {**BASES["clusters"][0], "nodes": 2 ** random.randrange(2, 14)},
        "gpus": 2 ** random.randrange(3, 16),
        "workload": {
            "seq_len": 2 ** random.randrange(4, 28),
            "global_batch": 2 ** random.randrange(25),
            "precision": random.choice(("bf16", "fp32")),
        },
        "plan": {
            "tensor": random.choice((1, heads, 2 ** random.randrange(5))),
            "pipeline": random.choice((1, shard)),
            "context": 2 ** random.randrange(5),
            "zero": random.randrange(4),
        },
    }
    command = random.choice(
        (["simulate", "sizes.yaml", "--json"], ["simulate", "sizes.yaml", "--engine", "--json"])
    )
    return Case(tuple(command), {"sizes.yaml": as_text(scenario, ".yaml")})


KINDS: dict[str, Kind] = {
    "scenario": from_data(named("scenario.yaml", "scenarios"), SIMULATE),
    "question": drawn("question.yaml", questions.training, SIMULATE[:4]),
    "search": from_data(named("search.yaml", "searches"), (["plan", "FILE", "--json"], ["plan", "FILE"])),
    "variations": from_data(
        named("variations.yaml", "variations"),
        (
            ["whatif", "FILE", "--json"],
            ["whatif", "FILE"],
            ["whatif", "FILE", "--engine", "--json"],
            ["whatif", "FILE", "--sweep", "workload.global_batch=16,32", "--replan", "--json"],
            ["whatif", "FILE", "--html", "out/page.html"],
        ),
    ),
    "config": from_data(
        [
            *named("config.json", "configs"),
            *(("config.json", config) for config in (*CONFIGS.values(), *PUBLISHED_2025.values())),
        ],
        (
            ["show", "models", "FILE", "--json"],
            ["show", "models", "./FILE"],
            [*OF_A100, "--model", "FILE", "--json"],
        ),
    ),
    "model": from_data(
        named("model.yaml", "models"),
        (["show", "models", "FILE"], [*OF_A100, "--model", "FILE"], [*OF_A100, "--model", "FILE", "--json"]),
    ),
    "cluster": from_data(
        named("cluster.yaml", "clusters"),
        (
            ["show", "clusters", "FILE", "--json"],
            ["show", "clusters", "FILE"],
            [*OF_GPT2, "--cluster", "FILE"],
        ),
    ),
    "device": from_data(
        named("device.yaml", "devices"),
        (
            ["show", "devices", "FILE", "--json"],
            ["show", "devices", "FILE"],
            [*OF_GPT2, "--cluster", "own.yaml"],
        ),
        {"own.yaml": as_text({**BASES["clusters"][0], "device": "./device.yaml"}, ".yaml")},
    ),
    "framework": from_data(
        [("framework.yaml", _framework())],
        ([*OF_GPT2, "--cluster", "dgx-a100-80gb", "--framework", "FILE"], ["show", "frameworks", "FILE"]),
    ),
    "cases": from_text(
        [("cases.csv", cases_csv())],
        (["validate", "--cases", "FILE"], ["validate", "--cases", "FILE", "--json"]),
    ),
    "points": from_text(
        [("gemm.csv", _points_csv())],
        (
            ["calibrate", "FILE", "--device", "a100-sxm-80gb", "-o", "out/mine.yaml"],
            [
                "calibrate",
                "FILE",
                "--device",
                "a100-sxm-80gb",
                "-o",
                "out/m.yaml",
                "--page",
                "out/page.html",
                "--json",
            ],
            ["validate", "--kernels", "."],
        ),
    ),
    "imports": from_text(
        _imports(),
        (
            ["profile", "--import", "FILE", "-o", "out/points"],
            ["profile", "--import", "FILE", "--gpu", "mi300x", "-o", "out/points"],
        ),
    ),
    "trace": from_data(
        named("trace.json", "traces"),
        (
            ["profile", "--import", "FILE", "-o", "out/points"],
            ["profile", "--import", ".", "-o", "out", "--json"],
        ),
    ),
    "flags": _flags,
    "sizes": _sizes,
}
