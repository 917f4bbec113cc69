"""Servers of launch files as scenarios."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import InputError
from meshwright.api.launch import export
from meshwright.exporters.base import Imported
from meshwright.exporters.imports import read_launch


def read(source: str, cluster: str = "dgx-h200", **stated: Any) -> Imported:
    return read_launch(source, stated={"cluster": cluster, **stated})


def deployment(source: str, **stated: Any) -> dict[str, Any]:
    return read(source, **stated).scenario["deployment"]


QWEN = "Qwen/Qwen3-235B-A22B-Instruct-2507"


def test_options_of_vllm_serve() -> None:
    line = (
        f"vllm serve {QWEN} -tp 4 --data-parallel-size=2 --enable-expert-parallel "
        "--max-model-len 32k --max-num-seqs 512 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8_e4m3 "
        "--no-enable-prefix-caching --served-model-name qwen --port 9000"
    )
    pool = deployment(line)
    assert (pool["tensor"], pool["data"], pool["expert"], pool["kv"]) == (4, 2, 8, "fp8")
    expected = {"max_sequences": 512, "max_context": 32000, "memory_share": 0.92, "prefix_caching": False}
    assert pool["options"] == expected
    assert read(line).scenario["gpus"] == 8
    assert read(line).unknown == ()


def test_a_container_may_be_started_over_several_lines() -> None:
    lines = (
        "docker run --gpus all \\\n  --ipc=host \\\n  vllm/vllm-openai:v0.11.0 \\\n  --model Qwen/Qwen3-8B"
    )
    assert deployment(lines)["tensor"] == 1
    assert read(lines).scenario["model"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("name", ["$HOME/models/Qwen3-8B", "/root/Qwen3-8B/"])
def test_a_folder_is_called_as_its_model(name: str) -> None:
    assert deployment(f'vllm serve "{name}"')["tensor"] == 1


def test_a_model_that_the_file_does_not_set_is_told() -> None:
    with pytest.raises(InputError, match=r"does not set '\$1', which is the model: give --model"):
        read("vllm serve $1 --tensor-parallel-size 2")


def test_data_parallel_ranks_of_a_dense_model_are_replicas() -> None:
    imported = read("vllm serve meta-llama/Llama-3.1-8B-Instruct --data-parallel-size 4")
    assert imported.scenario["deployment"]["replicas"] == 4
    assert imported.scenario["gpus"] == 4


def test_options_of_sglang_with_attention_ranks() -> None:
    line = (
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --dp-size 8 "
        "--ep 16 --enable-dp-attention --mem-fraction-static 0.8 --chunked-prefill-size 16384 "
        "--max-running-requests 1024"
    )
    pool = deployment(line)
    assert (pool["tensor"], pool["data"], pool["expert"]) == (2, 8, 16)
    assert pool["options"] == {"memory_share": 0.8, "token_budget": 16384, "max_sequences": 1024}


def test_options_of_tensorrt_llm_lie_in_a_file_beside_the_command(tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text(
        "enable_attention_dp: true\nmax_num_tokens: 4096\n"
        "kv_cache_config: {free_gpu_memory_fraction: 0.8, dtype: fp8}\n"
    )
    script = tmp_path / "serve.sh"
    script.write_text(
        "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --max_batch_size 256 \\\n"
        "  --extra_llm_api_options extra.yaml\n"
    )
    pool = deployment(str(script))
    assert (pool.get("tensor"), pool["data"], pool["expert"], pool["kv"]) == (1, 8, 8, "fp8")
    assert pool["options"] == {"memory_share": 0.8, "token_budget": 4096, "max_sequences": 256}
    (tmp_path / "extra.yaml").unlink()
    with pytest.raises(InputError, match=r"extra\.yaml: the file of options is not beside"):
        deployment(str(script))


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.11.0
          args: [--model, meta-llama/Llama-3.3-70B-Instruct, -tp, "4", --max-num-seqs, "64"]
          resources: {limits: {nvidia.com/gpu: 4}}
"""


def test_a_manifest_tells_replicas_and_release(tmp_path: Path) -> None:
    path = tmp_path / "llama.yaml"
    path.write_text(MANIFEST)
    imported = read(str(path))
    pool = imported.scenario["deployment"]
    assert (pool["replicas"], pool["tensor"], pool["engine"]) == (3, 4, "vllm-0.11")
    assert imported.scenario["gpus"] == 12
    path.write_text(
        MANIFEST.replace("args: [", 'command: [sh, -c, "exec vllm serve x -tp 2"]\n          _: [')
    )
    assert read(str(path), model="llama3.3-70b").scenario["deployment"]["tensor"] == 2


DYNAMO = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
spec:
  services:
    Frontend: {componentType: frontend, replicas: 1, extraPodSpec: {mainContainer: {image: dynamo:1.0}}}
    Prefill:
      subComponentType: prefill
      replicas: 2
      extraPodSpec:
        mainContainer:
          args: ["python3 -m dynamo.vllm --model Qwen/Qwen3-32B --tensor-parallel-size 2 --is-prefill-worker"]
          command: [/bin/sh, -c]
    Decode:
      subComponentType: decode
      replicas: 1
      extraPodSpec:
        mainContainer:
          args: ["python3 -m dynamo.vllm --model Qwen/Qwen3-32B --tensor-parallel-size 4"]
          command: [/bin/sh, -c]
"""


def test_pools_of_a_dynamo_deployment(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(DYNAMO)
    imported = read(str(path))
    pools = {pool["role"]: pool for pool in imported.scenario["deployment"]["pools"]}
    assert (pools["prefill"]["replicas"], pools["prefill"]["tensor"], pools["decode"]["tensor"]) == (2, 2, 4)
    assert imported.scenario["gpus"] == 8


def test_a_worker_of_dynamo_states_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "graph.yaml"
    path.write_text(DYNAMO.replace("--is-prefill-worker", "--disaggregation-mode prefill"))
    pools = read(str(path)).scenario["deployment"]["pools"]
    assert sorted(pool["role"] for pool in pools) == ["decode", "prefill"]


LEADER = """
kind: LeaderWorkerSet
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - &server
            image: lmsysorg/sglang
            command: [python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B]
            args: [--tp, "2", --nnodes, $(LWS_GROUP_SIZE)]
    workerTemplate: {spec: {containers: [*server]}}
"""
SKY = """
envs: {NAME: Qwen/Qwen3-235B-A22B}
num_nodes: 2
resources: {accelerators: "H100:8", image_id: "docker:vllm/vllm-openai:v0.12.0"}
run: |
  if [ "$SKYPILOT_NODE_RANK" == "0" ]; then
    vllm serve $NAME -tp $SKYPILOT_NUM_GPUS_PER_NODE -pp $SKYPILOT_NUM_NODES
  else
    sleep infinity
  fi
service: {replica_policy: {min_replicas: 2, max_replicas: 5}}
"""


def test_workers_of_a_set_are_ranks_of_its_leader(tmp_path: Path) -> None:
    path = tmp_path / "lws.yaml"
    path.write_text(LEADER)
    scenario = read(str(path)).scenario
    assert (scenario["gpus"], scenario["deployment"]["replicas"]) == (6, 3)


def test_a_task_of_skypilot_states_nodes_devices_and_replicas(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(SKY)
    imported = read(str(path))
    pool = imported.scenario["deployment"]
    assert (pool["tensor"], pool["pipeline"], pool["replicas"], pool["engine"]) == (8, 2, 2, "vllm-0.12")
    assert any("max_replicas 5 is left out" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("vllm serve Qwen/Qwen3-32B --cpu-offload-gb 10", "--cpu-offload-gb: is not read, and may change"),
        ("vllm serve Qwen/Qwen3-32B --tensor-paralel-size 2", "did you mean '--tensor-parallel-size'"),
        ("vllm serve $MODEL -tp 2", "give --model"),
        ("vllm serve Qwen/Qwen3-32B --max-num-seqs many", "--max-num-seqs: a whole number is needed"),
        ("vllm serve Qwen/Qwen3-32B --config x.yaml", "options from another file"),
        ("vllm serve Qwen/Qwen3-32B --kv-cache-dtype turbo", "no KV format 'turbo'"),
        ("vllm serve Qwen/Qwen3-32B --speculative-config {", "a JSON object is needed"),
        ("python -m sglang.launch_server --model Qwen/Qwen3-32B --tp 8 --attn-dp-size 3", "do not divide"),
    ],
)
def test_what_may_change_a_server_is_refused_by_its_name(line: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(line)
    assert message in str(error.value)


@pytest.mark.parametrize("engine", ["vllm-0.19", "sglang-0.5.12", "tensorrt-llm-1.2"])
@pytest.mark.parametrize(
    "shape", [{"tensor": 2}, {"tensor": 4, "replicas": 2}, {"tensor": 1, "data": 8, "expert": 8}]
)
def test_an_exported_server_is_read_as_the_same_deployment(
    engine: str, shape: dict[str, int], tmp_path: Path
) -> None:
    model = "qwen3-235b-a22b" if "expert" in shape else "qwen3-32b"
    options = {"token_budget": 4096, "max_sequences": 64, "memory_share": 0.85, "prefix_caching": False}
    scenario = {
        "model": model,
        "cluster": "dgx-h200",
        "gpus": shape.get("tensor", 1) * shape.get("data", 1) * shape.get("replicas", 1),
        "workload": {
            "kind": "serving",
            "requests": 20,
            "arrivals": {"kind": "closed", "concurrency": 4},
            "input": {"kind": "fixed", "tokens": 500},
            "output": {"kind": "fixed", "tokens": 50},
        },
        "deployment": {"engine": engine, "weights": "fp8", **shape, "options": options},
    }
    target = {"vllm-0.19": "vllm", "sglang-0.5.12": "sglang", "tensorrt-llm-1.2": "trtllm"}[engine]
    export(scenario, target, tmp_path)
    pool = deployment(str(tmp_path / "serve.sh"), model=model)
    assert pool["engine"] == engine
    assert {name: pool.get(name, 1) for name in shape} == shape
    told = {name: pool["options"][name] for name in options}
    assert told.pop("memory_share") == pytest.approx(options["memory_share"], abs=1e-3)
    assert told == {name: value for name, value in options.items() if name != "memory_share"}


CHART = """\
servingEngineSpec:
  modelSpec:
  - name: small
    repository: vllm/vllm-openai
    tag: v0.11.0
    modelURL: Qwen/Qwen3-8B
    replicaCount: 3
    requestGPU: 2
    vllmConfig:
      {tensorParallelSize: 2, maxModelLen: 4096, enablePrefixCaching: false, extraArgs: ["--max-num-seqs=64"]}
"""
RAY_SERVE = """\
applications:
- name: app
  args:
    llm_configs:
    - model_loading_config: {model_id: small, model_source: Qwen/Qwen3-8B}
      engine_kwargs: {tensor_parallel_size: 2, max_model_len: 4096}
      deployment_config: {autoscaling_config: {min_replicas: 3, max_replicas: 5}}
"""
RAY_LLM = """\
engine_config:
  {type: VLLMEngine, hf_model_id: Qwen/Qwen3-8B, max_total_tokens: 4096, engine_kwargs: {max_num_seqs: 64}}
scaling_config: {num_workers: 2, num_gpus_per_worker: 1}
deployment_config: {autoscaling_config: {min_replicas: 3}}
"""


@pytest.mark.parametrize("text", [CHART, RAY_SERVE, RAY_LLM], ids=["chart", "ray-serve", "ray-llm"])
def test_files_of_values_are_servers(tmp_path: Path, text: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    pool = deployment(str(file))
    assert (pool["tensor"], pool["replicas"], pool["options"]["max_context"]) == (2, 3, 4096)
    assert read(str(file)).scenario["model"] == "Qwen/Qwen3-8B"
    assert any("max_replicas 5 is left out" in note for note in read(str(file)).notes) == (text == RAY_SERVE)


def test_a_chart_may_ask_for_engine_0_and_for_roles(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(CHART.replace("tensorParallelSize: 2", 'tensorParallelSize: 2, v0: "1"'))
    assert deployment(str(file))["engine"] == "vllm-0.6"
    part = CHART.partition("modelSpec:\n")[2].rstrip()
    roles = [
        f"{part}\n    lmcacheConfig: {{enabled: true, kvRole: {role}}}\n"
        for role in ("kv_producer", "kv_consumer")
    ]
    file.write_text("servingEngineSpec:\n  modelSpec:\n" + "".join(roles))
    assert [pool["role"] for pool in deployment(str(file))["pools"]] == ["prefill", "decode"]


def test_an_engine_of_ray_that_is_not_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(RAY_LLM.replace("VLLMEngine", "TRTLLMEngine"))
    with pytest.raises(InputError, match=r"engine_config.type: 'TRTLLMEngine' is not read"):
        read(str(file))


def test_a_compose_file_may_start_vllm_by_its_entry_point(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    command = '["serve", "${MODEL:-Qwen/Qwen3-8B}", "--tensor-parallel-size", "2"]'
    file.write_text(f'services:\n  a:\n    image: mine\n    entrypoint: ["vllm"]\n    command: {command}\n')
    assert (read(str(file)).scenario["model"], deployment(str(file))["tensor"]) == ("Qwen/Qwen3-8B", 2)
