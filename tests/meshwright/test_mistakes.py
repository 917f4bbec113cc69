"""A hundred mistakes that people type, and the sentence that each prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from meshwright.commands.plan_notes import rounder
from meshwright.commands.usage import OTHER_COMMANDS

ASKED = "--model llama3.1-8b --cluster dgx-h100 --gpus 8 --global-batch 8"
LOAD = "--isl 100 --osl 10 --ttft 1 --tpot 0.1"
SERVED = "plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 1"
SAVED = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 16,
    "workload": {"seq_len": 4096, "global_batch": 64},
    "plan": {"tensor": 2, "zero": 1},
}

MISTAKES = {
    # The six of the review of 0.6.0.
    "serve": "Did you mean 'plan serve'",
    "whatif p.yaml --set tpp=4": "plan.tensor",
    "whatif p.yaml --set gpus=lots,framework.defaults.zero=2": "gpus: must be a whole number",
    "whatif p.yaml --set gpu=h200": "error: --set and --sweep: unknown key 'gpu'; did you mean 'gpus'?",
    "whatif p.yaml --set schedule=1f1bb": "--set schedule: unknown schedule '1f1bb'; did you mean '1f1b'?",
    "whatif p.yaml --sweep tp=2,eight": "--sweep tp: must be a whole number from 1 to",
    "whatif p.yaml --sweep gpus=64..256": "--sweep gpus: must be values between commas, as 64,128,256",
    "whatif gpt3-175b-1024-a100": "it names what to change, as --set and --sweep do",
    "export p.yaml --to megatrn -o o": "unknown export target 'megatrn'; did you mean 'megatron-lm'?",
    "plan size p.yaml --tokens 15T --days 1 --gpus 8..16": "16 GPUs of dgx-h100 take",
    "plan train p.yaml --fix schedule=interleaved --fix virtual_pipeline=1": "virtual_pipeline",
    # Names.
    f"plan train {ASKED.replace('8b', '8x')}": "did you mean 'llama3.1-8b'?",
    f"plan train {ASKED.replace('dgx-h100', 'dgx-h10')}": "did you mean 'dgx-h100'?",
    f"plan train {ASKED} --framework megatrn": "did you mean 'megatron-core'?",
    f"plan train {ASKED} --precision bf8": "did you mean 'fp8'?",
    f"plan train {ASKED} --fix tensr=8": "unknown plan field 'tensr'; did you mean 'tensor'?",
    "simulate llama3-8b-64-h10": "unknown scenario 'llama3-8b-64-h10'; did you mean 'llama3-8b-64-h100'?",
    "show modle": "unknown kind 'modle'; did you mean 'models'?",
    "show models lama3-8b": "did you mean 'llama3-8b'?",
    f"plan mix --types l44 --model llama3.1-8b --rate 1 {LOAD}": "--types: unknown device or cluster 'l44'",
    "import p.sh --cluster dgx-h100 --from megatrn": "--from: unknown export target 'megatrn'",
    "plan train --model llama3.1-8b --cluster dgx-h10": "--cluster: unknown cluster 'dgx-h10'; did you mean",
    # Values.
    f"plan train {ASKED.replace('--gpus 8', '--gpus eight')}": "a range 256..2048, found 'eight'",
    f"plan train {ASKED} --seq-len long": "must be a whole number, as 8192, 8k or 4M; found 'long'",
    f"plan train {ASKED} --fix tp:8": "must be field=value, for instance tensor=8; found 'tp:8'",
    f"plan train {ASKED} --headroom lots": "a percentage (10%) or a size (8GiB), found 'lots'",
    "plan train p.yaml --objective speed": "must be 'time', 'cost' or 'energy', found 'speed'",
    "plan serve --model gpt2 --cluster l4-8 --gpus 2 --isl 9 --osl 9 --ttft soon": "seconds (0.5, 500ms)",
    f"plan day --rates 2,x --model llama3.1-8b --cluster dgx-h100 --gpus 8 {LOAD}": "--rates: must be rates",
    "plan size p.yaml --tokens 15T --budget $1k --gpus 16": "within 1,000 $; the cheapest, 16 GPUs",
    "plan size p.yaml --tokens 15T --days 0 --gpus 16": "days: must be days above 0, found 0",
    "simulate p.yaml --set tp=4": "--set: no such option; it belongs to 'whatif'; see meshwright simulate",
    "plan size p.yaml --tokens 15T --budget lots": "--budget: must be dollars, as 5000",
    "plan size mixed-llama3-70b --tokens 1T": "`meshwright plan` ranks plans of it",
    # Usage: the flag, what it takes, and where to read more.
    "plan trian": "No such question 'plan trian'. Did you mean 'plan train'?",
    "plann": "unknown command 'plann'; did you mean 'plan'?",
    "plan train --top x": "--top: must be a whole number, found 'x'; see meshwright plan train --help",
    f"plan serve {LOAD} --rate 0": "--rate: must be at least 0.000001, found '0'",
    f"plan mix --model llama2-7b {LOAD}": "--types is missing (GPU types: l4,",
    f"plan mix --types l4@cheap --model llama2-7b --rate 1 {LOAD}": "NAME=COUNT@PRICE, found 'l4@cheap'",
    f"plan train {ASKED} --lora big": "--adapter: must be RANK or RANK:FORMAT, as 16 or 16:nf4; found 'big'",
    "plan train --save": "--save: a value is missing (Write a plan as a scenario file)",
    "plan train p.yaml more": "more: one argument too many",
    "show": "KIND is missing (devices, clusters,",
    "show clusters dgx-h100 --grap x": "--grap: no such option; did you mean '--graph'",
    f"plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 1 {LOAD} --kv fp9": "--kv: must be 'fp32',",
    f"plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 4 {LOAD} --fix tp=3": "tensor must divide",
    # Words of other tools.
    "plan train --batch 64": "--batch: no such option; did you mean '--global-batch'; see",
    "plan serve --input-len 1000": "--input-len: no such option; did you mean '--isl'; see",
    "plan train --tp 8": "--tp: no such option; did you mean '--fix tensor=N'; see",
    # Files and missing parts.
    "simulate none.yaml": "none.yaml: no such file",
    "plan train --model llama3.1-8b": "--cluster --gpus --global-batch missing",
    "plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8 --isl 1000": "--osl missing",
    "plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8 --osl 9": "--use chat, code, agents or batch",
    "plan day --model llama3.1-8b --cluster dgx-h100 --gpus 8 --rates 1,2": "--isl --osl missing",
    "plan serve --model llama3.1-8b --gpu h100 --gpus 8 --use chat": "did you mean '--cluster NAME",
    "simulate memory-llama3-70b": "`meshwright plan memory-llama3-70b` looks for one",
    "plan train --model params.json --cluster dgx-h100 --gpus 8 --global-batch 8": "give the config.json",
    # The wrong question.
    "export p.yaml --to vllm -o o": "vllm takes serving plans, this one is for training",
    "learn p.yaml": "p.yaml: is no measurement; files that can be learned from",
    "sweep p.yaml": "is a scenario; a sweep names it and a grid",
    "plan train serve-llama3-70b": "is a serving scenario: meshwright plan serve serve-llama3-70b",
    "export p.yaml --to megatron-lm -o o --rank 2": "only a saved `plan --json` has ranks",
    # Thirty more, of November 2026: names that are absent, words of other tools, notes.
    f"plan train {ASKED.replace('llama3.1-8b', 'deepseek-ai/DeepSeek-V9')}": "(hf download",
    f"plan train {ASKED} --source-len 512": "source_len: llama3.1-8b has no encoder",
    f"plan train {ASKED.replace('llama3.1-8b', 'mamba2-2.7b')}": "hybrids are",
    f"plan train {ASKED.replace('llama3.1-8b', 'foo-3b')}": "for another give its config.json",
    f"plan train {ASKED.replace('dgx-h100', 'tpu-v5e')}": "TPU is not there",
    f"plan train {ASKED.replace('dgx-h100', 'trn2')}": "Trainium is not there",
    f"plan train {ASKED} --framework verl": "asked with kind: rl",
    f"plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 1 {LOAD} --engine tgi": "engines are vllm",
    "plan serve --slo 0.5": "did you mean '--ttft and --tpot'",
    "plan train --max-seq-len 4096": "did you mean '--seq-len'",
    "plan train --ep 8": "did you mean '--fix expert=N'",
    f"plan train {ASKED} --adapter 16 --quantization 4bit": "did you mean '--adapter RANK:nf4'",
    "plan serve --kv-cache-dtype fp8": "did you mean '--kv'",
    "plan serve --quantization fp8": "did you mean '--fix weights=FORMAT'",
    "simulate page.html": "is no scenario, which is a YAML file: --save plan.yaml writes one",
    "plan train --model p.yaml --cluster dgx-h100 --gpus 8 --global-batch 8": "is a scenario: meshwright",
    "plan train --nodes 4": "--nodes: no such option; did you mean '--gpus'",
    "plan train --qlora 16": "did you mean '--adapter RANK:nf4'",
    "plan train --optimizer adamw_8bit": "did you mean '--fix states=8-bit'",
    "plan rl --model qwen3-8b": "--cluster --gpus missing; give a scenario (meshwright plan rl rl-qwen3-30b)",
    f"plan train {ASKED} --adapter 16:int4": "frozen weights of 4 bits are nf4: 16:nf4",
    "plan size p.yaml --tokens 15 trillion": "a value with blanks needs quotes",
    "plan size --model llama3.1-8b --tokens 15 trillion": "is no scenario; a number is one word: 15T",
    "plan train --model llama3.1-8b --gpus 8 --global-batch 8": "meshwright show clusters lists names",
    "plan train --model llama3.1-8b --cluster dgx-h100 --gpus 8": "or --batch-tokens 4M",
    "plan train --lora-rank 16": "did you mean '--adapter RANK'",
    "import p.yaml --cluster dgx-h100": "is a scenario already: meshwright simulate",
    "export p.yaml --to KServe -o o": "kserve takes serving plans, this one is for training",
    "plan size p.yaml --tokens 15trillion --gpus 16": "must be a number, as 15e12, 15T or 300B",
    "simulate llama3.1-8b": "is a model, a scenario is needed; to plan one: meshwright plan train --model",
    "validate none.csv": "none.csv: no such file",
    "compare p.yaml p.yaml": "unknown command 'compare'; did you mean 'whatif'?",
    "benchmark x": "unknown command 'benchmark'; did you mean 'observe'?",
    "size --model llama3.1-8b": "Did you mean 'plan size'?",
    "export p.yaml --to unsloth -o o": "the nearest are trl and axolotl",
    "import https://hub.example/config.json --cluster dgx-h100": "is an address, a file is needed",
    "whatif p.yaml --set nic_gbps=800": "did you mean 'cluster.network.nic_gbps'?",
    "show models qwen9": "did you mean 'qwen",
    "show devic h100": "did you mean 'devices'?",
    f"{SERVED} {LOAD} --rate 5/s": "must be a number, found '5/s'",
    f"{SERVED} --isl 200000 --osl 9 --ttft 1": "longer than the",
    f"{SERVED} --isl 100 --osl 9 --ttft 0.0001": "a lone request",
    "plan train --model llama3-70b --cluster dgx-h100 --gpus 1 --global-batch 1 --seq-len 2k": "16:nf4",
    "whatif p.yaml --set cluster.nic_bandwidth=25e9": "did you mean 'cluster.network.nic_gbps'",
    "whatif p.yaml --set tensor_parallel=2": "did you mean 'plan.tensor'?",
    f"plan train {ASKED.replace('--gpus 8', '--gpus 7')} --fix tensor=4": "GPUs that would do: 8",
    "import . --cluster dgx-h100": "name one launch file of its files: ",
    # Values without their flags, fields as options, servers by other names (30 November 2026).
    f"plan train {ASKED} --fix tp=8 pp=4": "each value has its flag: --fix tensor=8 --fix pipeline=4",
    f"plan train {ASKED} --sequence-parallel": "did you mean '--fix sequence_parallel=VALUE'",
    f"plan train {ASKED} --output out.json": "did you mean '--save FILE, or --json > FILE'",
    f"plan serve --model whisper {LOAD} --cluster dgx-h100 --gpus 1": "did you mean 'whisper-large-v3'",
    f"plan serve --model bart-large {LOAD} --cluster dgx-h100 --gpus 1": "transformers, vllm-0.6 do",
    "plan mix --model llama3.1-8b --cluster dgx-h100": "did you mean '--types'",
    "plan rl --model qwen3-8b --rollouts 8": "keys of a scenario (docs/rl.md)",
    # Units in numbers, options twice, words of other tools in files (November 2026, 0.20.0).
    f"{SERVED} {LOAD} --ttft p99=2": "--ttft: is given 2 times; one value counts",
    f"plan train {ASKED.replace('dgx-h100', '8xH100')}": "stands apart: H100 with --gpus 8",
    f"plan train {ASKED} --seq-len 8k tokens": "numbers are written without a unit: --seq-len 8k",
    "plan train -m llama3.1-8b": "-m: no such option; did you mean '--model'",
    f"plan mix --types 4xl4 --model llama2-7b --rate 1 {LOAD}": "l4=4 among types",
    "plan size p.yaml --tokens 1T --gpus 8-64": "did you mean '8..64'?",
    # Words of trainers and of engines, parts of names (30 November 2026, second list).
    f"plan train {ASKED} --fsdp": "did you mean '--fix zero=3'",
    f"plan train {ASKED} --epochs 3": "it belongs to 'plan size'",
    f"plan train {ASKED} --grad-accum 8": "did you mean '--global-batch'",
    f"plan train {ASKED} --gradient-checkpointing": "did you mean '--fix recompute=full'",
    f"plan train {ASKED} --layers 40": "a config.json",
    f"{SERVED} {LOAD} --itl 0.03": "did you mean '--tpot'",
    f"{SERVED} {LOAD} --p99 1": "did you mean '--ttft p99=SECONDS'",
    f"{SERVED} {LOAD} --quant awq": "did you mean '--fix weights=FORMAT'",
    "plan size p.yaml --tokens 1T --deadline 30": "did you mean '--days'",
    "plan size p.yaml --samples 50000": "did you mean '--tokens",
    "simulate dlrm": "did you mean 'tables-dlrm-dcnv2'?",
    f"plan train {ASKED.replace('dgx-h100', 'rtx-4090')} --adapter 16:nf4": "--seq-len 2048: a plan fits",
    "plan size p.yaml --tokens 1T --gpus 8 --days 10d": "found '10d' (Deadline, in days)",
    "plan size p.yaml --tokens 1T --gpus 8 --budget 5000usd": "must be dollars, as 5000, 2M or $2M",
    f"{SERVED} {LOAD} --gpus=8..16".replace("--gpus 1 ", ""): "must be one number of devices, found '8..16'",
    "simulate tp.yaml": "plan: unknown key 'tp'; did you mean 'tensor'?",
    "simulate units.yaml": "must be a whole number, found '8k'; files state plain numbers: 8192",
    "simulate arrivals.yaml": "workload.arrivals.kind: unknown kind 'possion'; did you mean 'poisson'?",
    "simulate nodes.yaml": "unknown key 'nodes'; did you mean 'gpus'?",
    "plan train --model c.json --cluster dgx-h100 --gpus 8 --global-batch 8": "key 'model_type' is missing",
    "version": "did you mean '--version'?",
    "learn none.json": "none.json: no such file",
    f"plan train {ASKED} --precision int4": "must be 'fp32', 'tf32', 'fp16', 'bf16', 'fp8'",
}  # fmt: skip


def test_there_are_ninety():
    assert len(MISTAKES) >= 90


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (
            "plan train --model llama3.1-8b --cluster dgx-h100 --gpus 8 --global-batch 8",
            "131,072 tokens, the",
        ),
        (
            "plan train --model llama3.1-8b --cluster dgx-h100 --gpus 8 --global-batch 4M",
            "--batch-tokens 4.19M",
        ),
        (
            "plan train --model llama3-70b --cluster dgx-h100 --gpus 256 --global-batch 500 --seq-len 8k",
            "batch 500 on 256 GPUs: 512 would take",
        ),
        (
            f"plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 1 {LOAD} --rate 5 --pareto",
            "--rate not read",
        ),
    ],
)
def test_notes_beside_answers(typed, told, run):
    ran = run(*typed.split())
    assert ran.code == 0, ran
    assert told in " ".join(ran.err.split())
    assert "note" not in run(*f"plan train {ASKED} --seq-len 4k".split()).err


@pytest.mark.parametrize(("batch", "other"), [(500, 512), (1000, 1024), (512, None), (96, None), (60, None)])
def test_a_batch_with_more_divisors(batch, other):
    assert rounder(batch) == other


@pytest.mark.parametrize(
    ("batch", "devices", "other"), [(128, 96, 96), (512, 96, 480), (512, 64, None), (128, 352, None)]
)
def test_a_batch_that_divides_over_the_devices(batch, devices, other):
    assert rounder(batch, devices) == other


def test_servers_without_lengths_are_asked_for_chat(run):
    ran = run(
        "plan", "serve", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "1", "--refine", "0"
    )
    assert ran.code == 0 and "requests of --use chat" in ran.err and "1,165 in, 212 out" in ran.out


@pytest.mark.slow
def test_scenarios_are_listed_by_title_and_those_of_papers_apart(run):
    listed, papers = run("show", "scenarios").out, run("show", "scenarios", "papers").out
    assert len(listed.splitlines()) < 50 and "GRPO of Qwen3 30B-A3B" in listed and "post-training" in listed
    assert "papers/" not in listed.partition("more in papers")[0] and "papers/domino-7b" in papers
    trained = run("show", "scenarios", "training").out
    assert "llama3-8b-64-h100" in trained and "rl-qwen3-30b" not in trained


def test_words_for_kinds_of_entries(run):
    assert run("show", "gpus").out == run("show", "devices").out
    assert run("show", "model", "llama3.1-8b").out == run("show", "models", "llama3.1-8b").out
    assert "tokens/s of a user" in run(*f"{SERVED} --use chat --pareto".split()).out


@pytest.mark.parametrize("typed", MISTAKES, ids=[str(number) for number in range(1, len(MISTAKES) + 1)])
def test_a_mistake_prints_a_sentence_that_helps(typed, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    load = {"kind": "serving", "requests": 9, "input": 9, "output": 9}
    served = {key: SAVED[key] for key in ("model", "cluster", "gpus")} | {"deployment": {}}
    files = {
        "p.yaml": SAVED,
        "tp.yaml": SAVED | {"plan": {"tp": 2}},
        "units.yaml": SAVED | {"workload": {"seq_len": "8k", "global_batch": 64}},
        "nodes.yaml": {key: value for key, value in SAVED.items() if key != "gpus"} | {"nodes": 2},
        "arrivals.yaml": served | {"workload": load | {"arrivals": {"kind": "possion", "rate": 5}}},
    }
    for name, data in files.items():
        Path(name).write_text(yaml.safe_dump(data), encoding="utf-8")
    Path("c.json").write_text(json.dumps({"hidden_size": 4096}), encoding="utf-8")
    Path("p.sh").write_text("torchrun pretrain_gpt.py --num-layers 2\n", encoding="utf-8")
    Path("params.json").write_text(json.dumps({"dim": 4096, "n_layers": 32, "n_heads": 32}), encoding="utf-8")
    ran = run(*typed.split())
    assert ran.code in (1, 2), ran
    told = " ".join(ran.err.replace("│", " ").split())
    assert MISTAKES[typed] in told, told
    assert "Traceback" not in told


@pytest.mark.parametrize("option", OTHER_COMMANDS)
def test_the_command_named_for_an_option_has_it(option, run):
    assert option in run(*OTHER_COMMANDS[option].split(), "--help").out


def test_latency_targets_may_be_in_milliseconds(run):
    asked = (
        "plan",
        "serve",
        "--model",
        "llama3.1-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "1",
        "--isl",
        "500",
    )
    asked += ("--osl", "50", "--json")
    seconds = run(*asked, "--ttft", "0.5", "--tpot", "0.03")
    assert seconds.out == run(*asked, "--ttft", "500ms", "--tpot", "30ms").out
