"""Serving deployments as launch files: flags, memory shares from bytes, manifests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from core.errors import InputError
from core.loading import read_mapping
from meshwright.exporters import TARGETS, export, exporter
from meshwright.exporters.imports import read_launch
from meshwright.exporters.serving import UNTOLD, held_memory, pool_facts, pool_options
from meshwright.exporters.table import table
from meshwright.jobs.exports import question_of
from meshwright.questions.scenarios import shipped_scenarios
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.scenario import make_serving

ENGINES = ("vllm", "sglang", "trtllm")
SERVING = [name for name in TARGETS if "serving" in exporter(name).kinds]
OF_NODES = ("cluster", "clock_mhz", "power_cap_w")
"""Fields of nodes, not of an engine: every target names them as gaps."""


@pytest.fixture(scope="module")
def question():
    return question_of("disaggregate-llama3-70b")


@pytest.mark.parametrize("target", ENGINES)
def test_every_field_has_an_option_or_a_reason(target):
    known = table(exporter(target).table)
    told = known.options.keys() | known.derived.keys()
    assert {f"options.{name}" for name in EngineOptions.model_fields} - {"options.scheduler_options"} <= told
    fields = {f"pool.{name}" for name in Pool.model_fields if name not in UNTOLD + OF_NODES}
    assert fields - told <= ({"pool.expert", "pool.expert_tensor"} if target == "trtllm" else set())


@pytest.mark.parametrize("target", SERVING)
def test_clocks_caps_and_clusters_are_named_as_gaps(target, tmp_path):
    given = read_mapping(shipped_scenarios()["disaggregate-llama3-70b"])
    prefill, decode = given["deployment"]["pools"]
    pools = [{**prefill, "clock_mhz": 1500}, {**decode, "power_cap_w": 400, "cluster": "dgx-h200"}]
    changed = {**given, "deployment": {**given["deployment"], "pools": pools}}
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(dict(changed)), encoding="utf-8")
    gaps = "\n".join(export(question_of(str(path)), target).gaps)
    for words in ("nvidia-smi -lgc 1500", "nvidia-smi -pl 400", "cluster = dgx-h200"):
        assert words in gaps


ADAPTED = {
    "vllm": {"--enable-lora": True, "--max-loras": 50, "--max-lora-rank": 32},
    "sglang": {
        "--enable-lora": True,
        "--max-loras-per-batch": 50,
        "--max-lora-rank": 24,
        "--lora-target-modules": "all",
    },
    "trtllm": {"lora_config.max_lora_rank": 24, "lora_config.max_loras": 50},
}


@pytest.mark.parametrize("target", ADAPTED)
def test_adapters_are_options_of_the_engine(target):
    given = read_mapping(shipped_scenarios()["serve-llama3-70b"])
    adapters = {"count": 50, "rank": 24, "memory": 40}
    data = {**given, "deployment": {**given["deployment"], "adapters": adapters}}
    setting = make_serving(data, "test", Path())
    options, gaps = pool_options(table(exporter(target).table), setting, setting.pools[0])
    assert ADAPTED[target].items() <= options.items()
    assert not [gap for gap in gaps if "adapter" in gap]
    plain, _ = pool_options(table(exporter(target).table), *_first(make_serving(given, "test", Path())))
    assert not [name for name in plain if "lora" in name]


def _first(setting):
    return setting, setting.pools[0]


@pytest.mark.parametrize("target", SERVING)
def test_what_no_engine_does_is_named_as_a_gap(target, tmp_path):
    given = read_mapping(shipped_scenarios()["serve-llama3-70b"])
    path = tmp_path / "changed.yaml"
    for change, words in (
        ({"finetuning": {"tpot": 0.05}}, "finetuning"),
        ({"options": {"scheduler": "gang"}}, "gang"),
        (
            {"pipeline": 2, "speculation": {"draft": "llama3.2-1b", "asynchronous": True}},
            "speculation.asynchronous",
        ),
    ):
        changed = {**given, "deployment": {**given["deployment"], **change}}
        path.write_text(yaml.safe_dump(dict(changed)), encoding="utf-8")
        assert words in "\n".join(export(question_of(str(path)), target).gaps)


@pytest.mark.parametrize("target", SERVING)
def test_scripts_and_manifests_are_well_formed(target, question):
    made = export(question, target)
    assert made.files
    for name, text in made.files.items():
        if name.endswith(".yaml"):
            assert all(isinstance(part, dict) for part in yaml.safe_load_all(text))
        elif shutil.which("bash"):
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for gap in made.gaps:
        assert gap in next(iter(made.files.values()))


@pytest.mark.parametrize("target", ENGINES[:2])
def test_exported_scripts_are_read_back_without_a_model(target):
    script = export(question_of("serve-llama3-70b"), target).files["serve.sh"]
    assert read_launch(script, stated={"cluster": "dgx-h100"}).scenario["model"] == "llama3.1-70b"


@pytest.mark.parametrize("target", ENGINES)
def test_no_default_is_repeated_and_what_is_repeated_has_a_reason(target, question):
    """Every option of a table is at no default; those that may be one say why they are stated."""
    known, setting = table(exporter(target).table), question.deployed()
    for pool in setting.pools:
        options, _ = pool_options(known, setting, pool)
        assert not [name for name, value in options.items() if known.is_default(name, value)]
        assert "--dtype" not in options and "dtype" not in options
        script = next(text for name, text in export(question, target).files.items() if name.endswith(".sh"))
        for name in known.repeated.keys() & options.keys():
            assert name in script and known.repeated[name] in script


def test_memory_shares_mean_what_each_engine_means(question):
    setting = question.deployed()
    pool = setting.pools[0]
    facts, held = pool_facts(setting, pool), held_memory(setting, pool)
    total = setting.cluster.device.memory_bytes
    # vLLM: everything within the share; SGLang: weights and KV; TensorRT-LLM: KV of the rest.
    assert facts["options.memory_share"] == 0.9
    assert facts["derived.static_share"] * total == pytest.approx(
        held.weights + held.kv_bytes + held.outside, rel=1e-3
    )
    context = engines.get("vllm-0.15").context_bytes.value
    free = total - held.weights - held.activations - context
    assert facts["derived.free_share"] * free == pytest.approx(held.kv_bytes, rel=1e-3)
    assert facts["derived.static_share"] < 0.9


def test_dynamo_starts_every_replica_with_its_devices(question):
    graph = yaml.safe_load(export(question, "dynamo").files["deployment.yaml"])
    workers = [part for part in graph["spec"]["services"].values() if part["componentType"] == "worker"]
    placed = sum(part["replicas"] * int(part["resources"]["limits"]["gpu"]) for part in workers)
    assert placed == question.deployed().gpus
    assert {part["subComponentType"] for part in workers} == {"prefill", "decode"}


def test_kubernetes_asks_for_all_devices():
    objects = list(
        yaml.safe_load_all(export(question_of("serve-llama3-70b"), "k8s").files["meshwright.yaml"])
    )
    deployment = next(part for part in objects if part["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert deployment["spec"]["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"]) == 16
    job = list(
        yaml.safe_load_all(export(question_of("mixtral-8x7b-128-h100"), "k8s").files["meshwright.yaml"])
    )[-1]
    limits = job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert job["spec"]["completions"] * int(limits["nvidia.com/gpu"]) == 128


def test_a_training_plan_is_no_deployment():
    with pytest.raises(InputError, match="vllm takes serving plans"):
        export(question_of("gpt3-175b-1024-a100"), "vllm")


TRTLLM = {
    "tensor_parallel_size": int,
    "pipeline_parallel_size": int,
    "moe_expert_parallel_size": int,
    "moe_tensor_parallel_size": int,
    "enable_attention_dp": bool,
    "enable_chunked_prefill": bool,
    "dtype": str,
    "max_batch_size": int,
    "max_num_tokens": int,
    "max_seq_len": int,
    "stream_interval": int,
    "disable_overlap_scheduler": bool,
    "kv_cache_config": {
        "dtype": str,
        "tokens_per_block": int,
        "max_tokens": int,
        "enable_block_reuse": bool,
        "free_gpu_memory_fraction": float,
    },
    "scheduler_config": {"capacity_scheduler_policy": str},
    "cache_transceiver_config": {"backend": str},
    "cuda_graph_config": {"max_batch_size": int},
    "lora_config": {"max_lora_rank": int, "max_loras": int},
    "speculative_config": {"decoding_type": str, "speculative_model_dir": str, "max_draft_len": int},
}
"""Fields and types of BaseLlmArgs and TorchLlmArgs, which forbid others (llmapi/llm_args.py)."""


def conforms(data, schema) -> bool:
    """Whether every key is a field of its type."""
    if isinstance(schema, dict):
        return isinstance(data, dict) and all(
            key in schema and conforms(data[key], schema[key]) for key in data
        )
    return type(data) is schema or (schema is float and type(data) is int)


@pytest.mark.parametrize("scenario", ["disaggregate-llama3-70b", "serve-llama3-70b"])
def test_options_of_tensorrt_llm_are_fields_of_its_arguments(scenario):
    made = export(question_of(scenario), "trtllm")
    written = [yaml.safe_load(text) for name, text in made.files.items() if name.endswith(".yaml")]
    assert written and all(conforms(options, TRTLLM) for options in written)
    known = table("trtllm-1.2.yaml")
    names = {entry.option for entry in known.options.values() if entry.option}
    names |= {name for entry in known.options.values() for choice in entry.choices for name in choice.sets}
    for name in names:
        first, _, inner = name.partition(".")
        assert first in TRTLLM and (not inner or inner in TRTLLM[first])


EXPERTS = {
    "model": "qwen3-30b-a3b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 10,
        "arrivals": {"kind": "burst"},
        "input": 100,
        "output": 10,
    },
    "deployment": {
        "tensor": 1,
        "data": 8,
        "expert": 8,
        "exchange": "deepep",
        "overlap": {"kind": "two-batches"},
        "largest_graph": 1024,
        "speculation": {"kind": "eagle3", "tokens": 3},
    },
}
HEADS = "RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3"


def options_of(target, engine, **deployment):
    given = {**EXPERTS, "deployment": {**EXPERTS["deployment"], "engine": engine, **deployment}}
    setting = make_serving(given, "test", Path())
    options, gaps = pool_options(table(exporter(target).table), setting, setting.pools[0])
    return options, [gap for gap in gaps if "preemption" not in gap]


def test_switches_of_an_engine_are_its_own_flags():
    vllm, gaps = options_of("vllm", "vllm-0.33")
    assert not gaps and vllm["--all2all-backend"] == "deepep_low_latency" and vllm["--enable-dbo"]
    assert vllm["--max-cudagraph-capture-size"] == 1024 and HEADS in vllm["--speculative-config"]
    sglang, gaps = options_of("sglang", "sglang-0.5.23")
    assert not gaps and sglang["--moe-a2a-backend"] == "deepep" and sglang["--enable-two-batch-overlap"]
    # Graphs hold sequences, of which each verifies four tokens; steps and tokens are the documentation's.
    assert sglang["--cuda-graph-max-bs-decode"] == 256
    names = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    assert [sglang[name] for name in names] == [3, 1, 4]
    assert sglang["--speculative-draft-model-path"] == HEADS
    trtllm, gaps = options_of("trtllm", "tensorrt-llm-1.2", exchange="all-gather", overlap=None)
    assert trtllm["cuda_graph_config.max_batch_size"] == 256 and "exchange" in "".join(gaps)
