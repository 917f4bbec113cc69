"""Kinds of broken serving questions, measured serving runs, request logs and mixed clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.examples import PEAK_THROUGHPUT
from tests.fuzz.case import ROOT, Case, Kind, cell_changed, drawn, from_data, from_text
from tests.fuzz.mutate import as_text, broken
from tests.laws import questions

BASES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("bases_serving.yaml").read_text(encoding="utf-8")
)


def named(name: str, kind: str) -> list[tuple[str, Any]]:
    """The valid inputs of a kind as files of one name."""
    return [(name, data) for data in BASES[kind]]


SIMULATE = (
    ["simulate", "FILE", "--json"],
    ["simulate", "FILE", "--json"],
    ["simulate", "FILE"],
    ["simulate", "FILE", "--requests", "out/requests.csv", "--json"],
    ["simulate", "FILE", "--html", "out/page.html"],
    ["simulate", "FILE", "--trace", "out/steps.json.gz", "--json"],
)

TRACES = {
    "azure.csv": (
        "azure",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51.2224670,879,55\n",
    ),
    "azure2024.csv": (
        "azure",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:00.017335+00:00,2399,6\n"
        "2024-05-10 00:00:01.017335+00:00,400,60\n",
    ),
    "mooncake.jsonl": (
        "mooncake",
        '{"timestamp": 0, "input_length": 600, "output_length": 52, "hash_ids": [0, 1]}\n'
        '{"timestamp": 900, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3000, "input_length": 512, "output_length": 26, "hash_ids": [7]}\n',
    ),
    "burst.csv": (
        "burstgpt",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,230,1317,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n",
    ),
    "run.json": (
        "benchmark",
        '{"input_lens": [100, 200, 300], "output_lens": [8, 16, 24], "start_times": [10.0, 10.5, 11.25]}\n',
    ),
    "run.jsonl": (
        "benchmark",
        '{"input_lens": [100, 200], "output_lens": [8, 16]}\n{"input_lens": [300], "output_lens": [24]}\n',
    ),
    "plain.csv": (
        "plain",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,395,112\n0.7,100,20\n1.5,640,33\n",
    ),
    "session.json": (
        "weka",
        '{"block_size": 64, "hash_id_scope": "local", "requests": [\n'
        '{"t": 0.0, "type": "s", "in": 130, "out": 9, "hash_ids": [1, 2], "api_time": 1.5},\n'
        '{"t": 2.0, "type": "subagent", "requests": '
        '[{"t": 0.5, "type": "n", "in": 64, "out": 5, "hash_ids": [3]}]},\n'
        '{"t": 9.0, "type": "s", "in": 200, "out": 4, "hash_ids": [1, 2, 4], "think_time": 0.5}]}\n',
    ),
    "talks.json": (
        "sharegpt",
        '[{"id": "a", "conversations": [{"from": "human", "value": "How do stars form?"},'
        '\n {"from": "gpt", "value": "From clouds of gas that collapse under their own weight."}]},\n'
        ' {"id": "b", "conversations": [{"from": "human", "value": "And planets?"},\n'
        ' {"from": "gpt", "value": "From the disk that is left."}]}]\n',
    ),
}
"""Request logs by file name: their format, and valid text."""


def _traces(random: Random) -> Case:
    """A log with cells changed or text broken, and the scenario that replays it."""
    name = random.choice(list(TRACES))
    form, text = TRACES[name]
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        text = cell_changed(text, random) if random.random() < 0.7 else broken(text, random)
    trace: dict[str, Any] = {"format": form, "path": name}
    if random.random() < 0.3:
        trace["rate_scale"] = random.choice((0.5, 10, 1e-9, 1e9))
    if random.random() < 0.1:
        trace["format"] = random.choice(list(TRACES.values()))[0]
    workload: dict[str, Any] = {"kind": "serving", "requests": random.choice((2, 3, 50)), "trace": trace}
    if form in ("benchmark", "sharegpt", "weka") or random.random() < 0.3:
        workload["arrivals"] = random.choice(
            ({"kind": "poisson", "rate": 5}, {"kind": "closed", "concurrency": 2}, {"kind": "burst"})
        )
    scenario = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": workload,
        "deployment": {
            "engine": "vllm-0.19",
            "tensor": 2,
            "options": {"max_context": 4096, "token_budget": 512, "max_sequences": 32},
        },
    }
    arguments = ("simulate", "replay.yaml", *random.choice((("--json",), ("--requests", "out/r.csv"))))
    return Case(arguments, {"replay.yaml": as_text(scenario, ".yaml"), name: text})


MEASURED = {
    "closed_loop.csv": {
        "case_id": "one",
        "harness": "inferencex",
        "engine": "vllm",
        "engine_version": "0.15.1",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "h100-sxm",
        "n_gpus": 1,
        "mode": "agg",
        "tp": 1,
        "pp": 1,
        "dp": 1,
        "ep": 1,
        "weight_precision": "bf16",
        "kv_precision": "",
        "isl_tokens": 1024,
        "osl_tokens": 128,
        "length_jitter": "uniform 0.8-1.0",
        "concurrency": 4,
        "batch": "",
        "tpot_ms_mean": 8.0,
        "ttft_ms_p50": 40,
        "out_tok_s_per_gpu": 400,
        "flag": "",
        "repeat_group": "",
    },
    "disaggregated.csv": {
        "case_id": "one",
        "harness": "silicon",
        "engine": "trtllm",
        "engine_version": "1.0.0",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "h100-sxm",
        "n_gpus": 3,
        "mode": "disagg",
        "prefill_gpus": 2,
        "prefill_workers": 2,
        "prefill_tp": 1,
        "prefill_batch": 1,
        "decode_gpus": 1,
        "decode_workers": 1,
        "decode_tp": 1,
        "decode_batch": 16,
        "weight_precision": "fp8",
        "isl_tokens": 1024,
        "osl_tokens": 128,
        "concurrency": 16,
        "tpot_ms_mean": 8.0,
    },
    "stages.csv": {
        "case_id": "one",
        "experiment": "64-qwen2-5-7b-instruct-tp1-roleplay-1-1",
        "stage": 0,
        "engine": "vllm",
        "engine_version": "0.15.1",
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "gpu": "h100-sxm",
        "precision": "FP16",
        "tp": 1,
        "dp": 1,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "kv_blocks": 65352,
        "prefix_caching": "on",
        "system_prompt_tokens": 150,
        "question_tokens": 600,
        "output_tokens": 251,
        "num_system_prompts": 10,
        "users_per_system_prompt": 5,
        "rate_req_s": 6,
        "duration_s": 1200,
        "ttft_ms_mean": 26.7,
        "itl_ms_mean": 7.0,
        "e2e_ms_mean": 1771.8,
        "flag": "",
    },
    "static_batch.csv": {
        "case_id": "one",
        "model": "meta-llama/Llama-2-70b-hf",
        "gpu": "a100-sxm-80gb",
        "tp": 4,
        "weight_precision": "fp16",
        "input_tokens": 128,
        "batch": 2,
        "output_tokens": 128,
        "prefill_ms": 81,
        "decode_step_ms": 53,
        "e2e_ms": 6916,
        "mean_power_frac_tdp": 0.7,
        "flag": "",
    },
    "tables.csv": PEAK_THROUGHPUT,
    "energy.csv": {
        "case_id": "one",
        "engine": "vllm",
        "engine_version": "0.11.1",
        "task": "lm-arena-chat",
        "model": "Qwen/Qwen3-14B",
        "weight_precision": "bf16",
        "gpu": "b200",
        "n_gpus": 1,
        "tp": 1,
        "pp": 1,
        "dp": "",
        "ep": 1,
        "max_num_seqs": 8,
        "avg_batch_size": 7.9,
        "avg_output_tokens": 615,
        "itl_ms_p50": 7.1,
        "out_tok_s": 1086,
        "avg_power_w_all_gpus": 760,
        "j_per_output_token": 0.7,
        "flag": "",
    },
    "mlperf.csv": {
        "case_id": "one",
        "round": "v5.0",
        "model": "meta-llama/Llama-2-70b-chat-hf",
        "gpu": "h200-sxm",
        "n_gpus": 8,
        "framework": "TensorRT 10.2",
        "benchmark": "llama2-70b-99",
        "scenario": "Server",
        "out_tok_s": 30000,
        "out_tok_s_per_gpu": 3750,
        "realised_output_tokens": 293,
        "target_qps": 100,
        "ttft_limit_ms": 2000,
        "tpot_limit_ms": 200,
        "flag": "",
    },
    "speculative.csv": {
        "gpu": "a100-sxm-80gb",
        "model": "lmsys/vicuna-7b-v1.3",
        "precision": "fp16",
        "batch": 1,
        "method": "EAGLE2",
        "mean_accepted_tokens_per_step": 4.5,
        "speedup_overall": 2.7,
    },
    "offline.csv": {
        "case_id": "one",
        "engine": "vllm",
        "model": "meta-llama/Llama-2-7b-hf",
        "gpu": "a100",
        "n_gpus": 1,
        "tp": 1,
        "weight_precision": "fp16",
        "input_tokens": 128,
        "output_tokens": 64,
        "batch": 4,
        "latency_s": 2.7,
        "total_tok_s": 300,
        "mean_power_w": 220,
        "flag": "",
    },
}
"""Measured serving runs by file name: one row of each format that `validate --serving` reads."""


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows), ""]
    return "\n".join(lines)


def _measured() -> list[tuple[str, str]]:
    return [(name, table_of([row, row | {"case_id": "two"}])) for name, row in MEASURED.items()]


def _open_loop(random: Random) -> Case:
    """A run with its requests in a file of its own; either may be broken."""
    run = {
        "run": "one",
        "file": "requests.csv",
        "engine": "vllm",
        "engine_version": "0.15.1",
        "model": "meta-llama/Llama-3.1-8B",
        "gpu": "rtx-pro-6000",
        "tp": 1,
        "weight_precision": "bf16",
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "arrival": "poisson",
    }
    lines = [
        f"{start:.2f},{100 + 50 * one},{8 + one},0,{start:.2f},{start + 0.05:.2f},{start + 0.4:.2f}"
        for one, start in enumerate((0.0, 0.3, 0.6, 0.9))
    ]
    head = "arrival_s,input_tokens,output_tokens,prefix_match_tokens,queued_s,first_token_s,last_token_s"
    files = {"meta.csv": table_of([run]), "requests.csv": "\n".join([head, *lines, ""])}
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        name = random.choice(("meta.csv", "requests.csv", "requests.csv"))
        change = cell_changed if random.random() < 0.75 else broken
        files[name] = change(files[name], random)
    command = ("validate", "--serving", "meta.csv", *(("--json",) if random.random() < 0.7 else ()))
    return Case(command, files)


def _engine() -> dict[str, Any]:
    text = (ROOT / "simulator" / "serving" / "engines" / "vllm-0.15.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text) | {"name": "mine"}


KINDS: dict[str, Kind] = {
    "engine": from_data(
        [("engine.yaml", _engine())],
        (["show", "engines", "FILE"], ["simulate", "own.yaml", "--json"]),
        {"own.yaml": as_text(BASES["servings"][0] | {"deployment": {"engine": "./engine.yaml"}}, ".yaml")},
    ),
    "serving": from_data(named("serving.yaml", "servings"), SIMULATE),
    "served-question": drawn("serving.yaml", questions.served, SIMULATE),
    "serving-variations": from_data(
        named("variations.yaml", "serving_variations"),
        (["whatif", "FILE", "--json"], ["whatif", "FILE"], ["whatif", "FILE", "--html", "out/page.html"]),
    ),
    "deployments": from_data(
        named("question.yaml", "serving_questions"),
        (["plan", "FILE", "--json", "--together"], ["plan", "FILE", "--fix", "tensor=1"]),
    ),
    "serving-traces": _traces,
    "serving-runs": from_text(
        _measured(), (["validate", "--serving", "FILE", "--json"], ["validate", "--serving", "FILE"])
    ),
    "open-loop": _open_loop,
    "mixed": from_data(
        named("mixed.yaml", "mixed"),
        (
            ["simulate", "FILE", "--json"],
            ["simulate", "FILE"],
            ["simulate", "FILE", "--engine", "--json"],
            ["simulate", "FILE", "--trace", "out/trace.json.gz", "--json"],
            ["plan", "FILE"],
        ),
    ),
}
