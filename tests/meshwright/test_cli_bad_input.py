"""What a user can get wrong: one clear message with file and key path, exit code 2, nothing written."""

import json
import os
import threading
from pathlib import Path

import pytest

from tests.examples import TRAINING_FLAGS


def flags(**changed: str) -> list[str]:
    """The flags of a question that works, with some changed."""
    values = dict(zip(TRAINING_FLAGS[::2], TRAINING_FLAGS[1::2], strict=True))
    return [
        part
        for pair in (values | {f"--{k.replace('_', '-')}": v for k, v in changed.items()}).items()
        for part in pair
    ]


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        (("llama2-7b", "llama2-7"), ["model", "llama2-7b"]),
        (("dgx-a100-80gb", "dgx-a100-80"), ["cluster", "dgx-a100-80gb"]),
        (("gpus: 16", "gpus: 16\nframework: megatron-cor"), ["framework", "megatron-core"]),
        (("tensor: 2", "tensr: 2"), ["plan", "tensr", "'tensor'"]),
        (("seq_len: 2048", "seqlen: 2048"), ["workload", "seqlen", "'seq_len'"]),
        (("gpus: 16", "gpu: 16"), ["'gpu'", "'gpus'"]),
        (("gpus: 16", "gpus: 16\ngpus: 16"), ["line 4", "gpus", "twice"]),
        (("gpus: 16", "gpus: '16'"), ["gpus", "whole number", "'16'"]),
        (("gpus: 16", "gpus: 1.6e1"), ["gpus", "whole number", "16.0"]),
        (("gpus: 16", "gpus: -16"), ["gpus", "above 0", "-16"]),
        (("gpus: 16", "gpus: 1000000"), ["gpus", "devices, asked for 1000000"]),
        (("precision: bf16", "precision: bf17"), ["workload.precision", "bf17"]),
        (("precision: bf16", "precision: fp8"), ["workload.precision", "fp8", "a100-sxm-80gb"]),
        (("model: llama2-7b", "model: ''"), ["model", "catalogue name, a path or a mapping", "''"]),
        (("gpus: 16", "gpus: 16\nsearch: {fix: {tensr: 8}}"), ["search.fix", "tensr", "'tensor'"]),
        (("gpus: 16", "gpus: 16\nsearch: {limit: {pipelines: 8}}"), ["search.limit", "'pipeline'"]),
        (("model: llama2-7b", "model: {name: mine}"), ["model", "'layers' is missing"]),
        (("model: llama2-7b", "model: 7"), ["model", "catalogue name, a path or a mapping", "7"]),
        (
            ("global_batch: 64", "global_batch: 63"),
            ["plan", "global_batch 63", "data x micro_batch", "4 x 1"],
        ),
        (("tensor: 2", "tensor: 2, data: 8"), ["plan", "2 x 1 x 8 x 2 = 32", "16 GPUs", "data: 4"]),
        (("tensor: 2, pipeline: 2", "tensor: 3, data: 1"), ["plan", "32 attention heads", "tensor = 3"]),
        (("pipeline: 2", "pipeline: 5"), ["plan", "32 layers", "5 x 1"]),
        (("tensor: 2, ", "tensor: 2, context: 3, data: 1, "), ["plan", "seq_len 2048", "context = 3"]),
        (("pipeline: 2", "pipeline: 2, schedule: interleaved"), ["plan", "interleaved", "2 or more chunks"]),
        (("pipeline: 2", "pipeline: 2, schedule: 1f2b"), ["schedule", "1f2b", "'1f1b'"]),
        (("pipeline: 2", "pipeline: 2, expert: 2"), ["plan", "no experts"]),
        (("micro_batch: 1", "micro_batch: 0"), ["plan", "micro_batch", "at least 1"]),
        (("zero: 1", "zero: 4"), ["plan", "zero", "at most 3"]),
        (("zero: 1", "recompute: some"), ["plan", "recompute", "'none', 'selective' or 'full'"]),
        (("zero: 1}", "zero: 1"), ["line", "not valid YAML"]),
        (("global_batch: 64", "global_batch: 9223372036854775808"), ["workload.global_batch", "1e+18"]),
        (("seq_len: 2048", "seq_len: 1000000000000000000"), ["workload.seq_len", "134217728"]),
        (("gpus: 16", "gpus: 100000000"), ["gpus", "16777216"]),
        (("tensor: 2", "tensor: 100000000"), ["plan", "tensor", "16777216"]),
        (("model: llama2-7b", "title: !!int foo\nmodel: llama2-7b"), ["!!int"]),
    ],
)
def test_a_wrong_scenario_names_file_and_key(refused, scenario, replaced, words):
    path = scenario(replaced)
    message = refused("simulate", str(path))
    for word in [str(path), *words]:
        assert word in message


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": "gpt3-175"}, ["unknown model", "gpt3-175b"]),
        ({"cluster": "dgx-a100"}, ["unknown cluster", "dgx-a100-"]),
        ({"cluster": "nowhere/own.yaml"}, ["nowhere/own.yaml", "no such file"]),
        ({"model": "nowhere/config.json"}, ["nowhere/config.json", "no such"]),
        ({"framework": "megatron-cor"}, ["unknown framework", "megatron-core"]),
        ({"precision": "bf61"}, ["workload.precision", "bf61", "bf16"]),
        ({"fix": "tensor"}, ["--fix", "tensor=8"]),
        ({"fix": "tensors=8"}, ["tensors", "'tensor'"]),
        ({"fix": "tensor=x"}, ["tensor", "'x'"]),
        ({"limit": "recompute=full"}, ["recompute"]),
        ({"objective": "speed"}, ["search.objective", "speed"]),
        ({"top": "0"}, ["search.top", "0"]),
        ({"seq_len": "0"}, ["workload.seq_len", "0"]),
        ({"seq_len": "1" + "0" * 30}, ["workload.seq_len", "134217728"]),
        ({"global_batch": "9223372036854775808"}, ["workload.global_batch", "16777216"]),
        ({"fix": "tensor=1" + "0" * 30}, ["tensor", "16777216"]),
        ({"fix": "tensor=" + "1" * 5000}, ["tensor", "whole number"]),
        ({"model": "a/\0b.yaml"}, ["null"]),
        ({"cluster": "x" * 300_000}, ["xxx", "unknown cluster"]),
        ({"cluster": "x/" * 300_000}, ["x/x/", "too long"]),
        ({"gpus": "17", "fix": "data=16"}, ["17"]),
        ({"global_batch": "1", "fix": "data=16"}, ["batch"]),
    ],
)
def test_wrong_flags_are_named(refused, changed, words):
    message = refused("plan", *flags(**changed))
    assert len(message) < 1000
    for word in words:
        assert word in message


def test_missing_flags_are_named_at_once(refused):
    message = refused("plan", "--model", "llama2-7b", "--gpus", "16")
    assert "--cluster --global-batch missing" in message


def test_a_model_that_fits_nowhere_says_what_is_short_and_what_would_help(refused):
    message = refused("plan", *flags(model="gpt-1t"), code=1)
    assert "short" in message
    assert "more devices" in message


def test_a_plan_that_does_not_fit_shows_its_memory_and_exits_1(run, scenario):
    ran = run("simulate", str(scenario(("llama2-7b", "llama2-70b"), ("zero: 1", "zero: 0"))))
    assert ran.code == 1
    assert "parameters" in ran.out
    assert "does not fit" in ran.err
    assert "short" in ran.err


def test_a_truncated_config_is_refused(refused, tmp_path):
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    (tmp_path / "config.json").write_text(json.dumps(config)[:-20], encoding="utf-8")
    message = refused("plan", *flags(model=str(tmp_path / "config.json")))
    assert "config.json" in message
    assert "cut off" in message


CLUSTER = """\
name: own
device: a100-sxm-80gb
devices_per_node: 8
nodes: 4
levels:
  - {name: nvlink, kind: nvswitch, devices: 8, bandwidth: 300e9, latency_s: 1.0e-6, calibration: nvlink3}
network: {fabric: infiniband, nics_per_node: 8, nic_gbps: 2e2, latency_s: 1.3e-6, nodes_per_leaf: 20}
host_watts: 2000
sources: {levels: datasheet}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bandwidth: 300e9", "bandwidth: -300e9", ["levels.0.bandwidth", "above 0"]),
        ("bandwidth: 300e9", "bandwidth: 300", ["levels.0.bandwidth", "bytes per second", "300"]),
        ("latency_s: 1.0e-6", "latency_s: 1.0", ["levels.0.latency_s", "is in seconds", "1.0"]),
        ("nic_gbps: 2e2", "nic_gbps: 2e11", ["network.nic_gbps", "is in Gb/s", "200000000000.0"]),
        ("bandwidth: 300e9", "bandwidth: .nan", ["levels.0.bandwidth", "finite"]),
        ("bandwidth: 300e9", "bandwidth: '300e9'", ["levels.0.bandwidth", "number", "'300e9'"]),
        ("bandwidth: 300e9", "bandwith: 300e9", ["levels.0", "bandwith", "'bandwidth'"]),
        ("name: own", "name: own\nname: own", ["line 2", "twice"]),
        ("device: a100-sxm-80gb", "device: a101", ["device", "a101"]),
    ],
)
def test_a_wrong_cluster_names_file_and_key(refused, tmp_path, old, new, words):
    path = tmp_path / "own.yaml"
    path.write_text(CLUSTER.replace(old, new), encoding="utf-8")
    message = refused("plan", *flags(cluster=str(path)))
    for word in [str(path), *words]:
        assert word in message


def test_a_cluster_in_scientific_notation_is_read(run, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CLUSTER, encoding="utf-8")
    ran = run("show", "clusters", str(path), "--json")
    assert json.loads(ran.out)["cluster"]["network"]["nic_bytes_per_s"] == 25e9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "devises"], ["unknown kind", "'devices'"]),
        (["show", "devices", "h10o"], ["unknown device", "'h100'"]),
        (["show", "scenarios", "gtp3-175b"], ["unknown scenario", "gpt3-175b"]),
        (["simulate", "gpt3-175b"], ["unknown scenario", "gpt3-175b-1024-a100"]),
        (["simulate", "none.yaml"], ["none.yaml", "no such file"]),
        (
            ["simulate", "own-cluster"],
            ["own-cluster.yaml", "'plan' is missing", "meshwright plan own-cluster"],
        ),
        (["simulate", "."], [".: is a folder"]),
        (["plan", "--model", ""], ["--cluster"]),
        (["validate", "--cases", "none.csv"], ["none.csv", "no such file"]),
    ],
)
def test_unknown_things_are_named(refused, arguments, words):
    message = refused(*arguments)
    for word in words:
        assert word in message


def test_a_file_of_cases_without_its_columns_is_refused(refused, tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text("case_id,gpu\none,h100-sxm\n", encoding="utf-8")
    message = refused("validate", "--cases", str(path))
    assert str(path) in message
    assert "'n_gpus' is missing" in message


def test_nothing_is_written_where_a_command_fails(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("plan", *flags(model="gpt3-175"))
    assert list(Path().iterdir()) == []


CASES = "case_id,gpu,n_gpus,n_layers,d_model,n_heads,seq_len,global_batch"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{CASES},n_gpus\n", ["'n_gpus' is given twice"]),
        (f"{CASES}\na,h100-sxm,8,32,4096,32,2048,64,more, and more\n", ["row 2", "10 values for 8 columns"]),
        ("", ["'case_id' is missing"]),
    ],
)
def test_a_file_of_cases_that_is_not_a_table_is_refused(refused, tmp_path, text, words):
    path = tmp_path / "cases.csv"
    path.write_text(text, encoding="utf-8")
    message = refused("validate", "--cases", str(path))
    for word in [str(path), *words]:
        assert word in message


FULL = f"{CASES},framework,micro_batch,tp,pp,precision,gpus_per_node"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a,a100-sxm-80gb,8,32,4096,0.2,2048,64,Megatron-LM,1,1,1,bf16,8", "'n_heads' must be at least 1"),
        (
            "a,a100-sxm-80gb,8,32,4096,32,2048,64,Megatron-LM,1,1,1,bf16,0",
            "'gpus_per_node' must be at least 1",
        ),
        ("a,a100-sxm-80gb,8,32,4096,32,2048,1e308,Megatron-LM,1,1,1,bf16,8", "from 1e-24 to 1e+18"),
        ("a,a100-sxm-80gb,8,32,4096,32,2048,1e15,Megatron-LM,1,1,1,bf16,8", "at most 16777216"),
    ],
)
def test_a_row_with_an_impossible_number_is_skipped_with_the_reason(run, tmp_path, line, words):
    path = tmp_path / "cases.csv"
    path.write_text(f"{FULL}\n{line}\n", encoding="utf-8")
    (skipped,) = json.loads(run("validate", "--cases", str(path), "--json").out)["skipped"]
    assert words in skipped["reason"]


def test_cases_as_a_spreadsheet_writes_them_are_read(run, tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text(f"{CASES}\r\none,h100-sxm,8,32,4096,32,2048,64\r\n", encoding="utf-8-sig")
    ran = run("validate", "--cases", str(path), "--json")
    assert json.loads(ran.out)["skipped"] == [{"case_id": "one", "reason": "framework not stated"}]


@pytest.mark.parametrize("option", ["--html", "--trace"])
def test_a_pipe_is_written_to_and_never_replaced(run, scenario, tmp_path, option):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(len(pipe.read_bytes())), daemon=True)
    reader.start()
    assert run("simulate", str(scenario()), option, str(pipe)).code == 0
    reader.join(timeout=10)
    assert read[0] > 10_000
    assert pipe.is_fifo()
