"""Launch files as people write them: one short file for each way to state a run, with what is right by hand.

They are written for these tests; `evidence/accuracy/public_launches.yaml` names public ones of each kind.
"""

from __future__ import annotations

from typing import Any

MEGATRON = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
SIZE=small
if [ -z ${CHUNKS} ]; then
    CHUNKS=2
fi
if [ $SIZE = large ]; then
    LAYERS=80
    WIDTH=8192
elif [ $SIZE = small ]; then
    LAYERS=32
    WIDTH=4096
else
    exit 1
fi
if [ $LAYERS -gt 64 ]; then TP=8; else TP=2; fi
RECOMPUTE=$([ $SIZE = small ] && echo full || echo selective)
srun python pretrain_gpt.py --num-layers $LAYERS --hidden-size $WIDTH --num-attention-heads 32 \\
    --ffn-hidden-size $((4 * WIDTH)) --seq-length 2048 --max-position-embeddings 2048 \\
    --micro-batch-size 2 --global-batch-size 128 --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size 2 --bf16 --use-distributed-optimizer
"""
MEGATRON_DEEPSPEED = """\
NODES=8
cat <<END > ./zero.json
{"train_micro_batch_size_per_gpu": 2, "train_batch_size": 512, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 0}}
END
python -m torch.distributed.run --nproc_per_node 8 --nnodes $NODES pretrain_gpt.py --num-layers 40 \\
    --hidden-size 5120 --num-attention-heads 40 --seq-length 2048 --max-position-embeddings 2048 \\
    --micro-batch-size 2 --global-batch-size 512 --tensor-model-parallel-size 4 \\
    --pipeline-model-parallel-size 4 --bf16 --checkpoint-activations --deepspeed \\
    --deepspeed_config ./zero.json --zero-stage 0
"""
TITAN = """\
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
[activation_checkpoint]
mode = "full"
"""
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
bf16: true
gradient_checkpointing: true
flash_attention: true
fsdp: [full_shard, auto_wrap]
fsdp_config:
  fsdp_offload_params: true
  fsdp_state_dict_type: FULL_STATE_DICT
"""
MESH = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 2048
micro_batch_size: 1
dp_shard_size: 4
dp_replicate_size: 2
tensor_parallel_size: 2
optimizer: adamw_torch_8bit
plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]
fsdp_version: 2
fsdp_config: {reshard_after_forward: true}
"""
ULYSSES = """\
model_name_or_path: Qwen/Qwen3-8B
stage: sft
finetuning_type: full
sequence_parallel_size: 4
sequence_parallel_mode: ulysses
flash_attn: disabled
cutoff_len: 8192
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: cpu
  offload_param_device: cpu
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
FACTORY = """\
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
quantization_bit: 4
cutoff_len: 2048
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
bf16: true
"""
AUTO = """\
{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
 "zero_optimization": {"stage": 3}}
"""
SERVER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  replicas: 2
  template:
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai:v0.11.0
          env: [{name: MODEL, value: meta-llama/Llama-3.1-8B-Instruct}]
          args: [--model, $(MODEL), --tensor-parallel-size, "2", --max-num-seqs, "128"]
          resources: {limits: {nvidia.com/gpu: 2}}
"""
SKYPILOT = """\
resources:
  accelerators: A100:1
run: |
  vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 1 --max-model-len 4096
"""

DOCKER = """\
docker run --gpus all -e VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm/vllm-openai:v0.11.0 \\
    --model openai/gpt-oss-120b --tensor-parallel-size=2
"""
LMCACHE = """\
vllm serve Qwen/Qwen3-32B-FP8 -tp 2 \\
    --kv-transfer-config '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'
"""
CHART = """\
servingEngineSpec:
  modelSpec:
  - name: small
    tag: v0.11.0
    modelURL: Qwen/Qwen3-8B
    replicaCount: 1
    vllmConfig: {tensorParallelSize: 2, maxModelLen: 4096, extraArgs: ["--max-num-seqs=64"]}
    lmcacheConfig: {enabled: false}
"""
RAY_LLM = """\
engine_config:
  type: VLLMEngine
  hf_model_id: Qwen/Qwen3-8B
  max_total_tokens: 4096
  engine_kwargs: {max_num_seqs: 64}
scaling_config: {num_workers: 2, num_gpus_per_worker: 1}
deployment_config: {autoscaling_config: {min_replicas: 1, max_replicas: 2}}
"""
FILES: list[dict[str, Any]] = [
    {
        "path": "docker.sh",
        "stated": {"cluster": "dgx-a100-80gb"},
        "right": {
            "deployment.tensor": 2,
            "deployment.engine": "vllm-0.11",
            "note": "TRITON_ATTN is left out",
        },
        "text": DOCKER,
    },
    {
        "path": "lmcache.sh",
        "stated": {"cluster": "dgx-h100"},
        "right": {"deployment.tensor": 2, "note": "'LMCacheConnectorV1' is left out"},
        "text": LMCACHE,
    },
    {
        "path": "megatron.sh",
        "stated": {"cluster": "dgx-h100", "vocabulary": 50257},
        "right": {"gpus": 32, "model.layers": 32, "plan.tensor": 2, "plan.data": 8, "plan.zero": 1},
        "text": MEGATRON,
    },
    {
        "path": "ds.sh",
        "stated": {"cluster": "dgx-a100-80gb", "vocabulary": 50257},
        "right": {
            "gpus": 64,
            "plan.pipeline": 4,
            "plan.recompute": "full",
            "framework": "megatron-deepspeed",
        },
        "text": MEGATRON_DEEPSPEED,
    },
    {
        "path": "titan.toml",
        "stated": {"cluster": "dgx-h100", "gpus": 64},
        "right": {"plan.data": 64, "plan.zero": 3, "framework": "torchtitan-eager"},
        "text": TITAN,
    },
    {
        "path": "axolotl.yaml",
        "stated": {"cluster": "dgx-h100", "gpus": 8},
        "right": {"plan.zero": 3, "workload.global_batch": 64, "plan.place.parameters": {"host": 1.0}},
        "text": AXOLOTL,
    },
    {
        "path": "accelerate.yaml",
        "stated": {
            "cluster": "dgx-h100",
            "gpus": 8,
            "model": "llama3.1-8b",
            "seq_len": 2048,
            "global_batch": 8,
        },
        "right": {"plan.zero": 3, "plan.place.parameters": {"host": 1.0}, "plan.update": {"on": "host"}},
        "text": ACCELERATE,
    },
    {
        "path": "factory.yaml",
        "stated": {"cluster": "dgx-h100", "gpus": 1},
        "right": {"workload.adapter": {"rank": 16, "base": "nf4"}, "workload.global_batch": 16},
        "text": FACTORY,
    },
    {
        "path": "mesh.yaml",
        "stated": {"cluster": "dgx-h100", "gpus": 16},
        "right": {
            "plan.tensor": 2,
            "plan.data": 8,
            "plan.shard_group": 4,
            "plan.states": "8-bit",
            "plan.cross_entropy": "chunked",
            "workload.global_batch": 8,
            "note": "against the rule offers",
        },
        "text": MESH,
    },
    {
        "path": "ulysses.yaml",
        "stated": {"cluster": "dgx-h100", "gpus": 8},
        "right": {
            "plan.context": 4,
            "plan.context_algorithm": "ulysses",
            "plan.attention": "unfused",
            "workload.global_batch": 16,
        },
        "text": ULYSSES,
    },
    {
        "path": "tiled.yaml",
        "stated": {"cluster": "dgx-h100", "gpus": 16},
        "refused": "tiled_mlp",
        "text": MESH + "tiled_mlp: true\n",
    },
    {
        "path": "quantize.toml",
        "stated": {"cluster": "dgx-h100", "gpus": 8},
        "right": {"workload.precision": "bf16", "plan.recompute": "full"},
        "text": TITAN + "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = false\n",
    },
    {
        "path": "compiled.toml",
        "stated": {"cluster": "dgx-h100", "gpus": 8},
        "right": {"framework": "torchtitan", "plan.cross_entropy": None},
        "text": TITAN + '[compile]\nenable = true\ncomponents = ["model", "loss"]\n',
    },
    {
        "path": "compiled-model.toml",
        "stated": {"cluster": "dgx-h100", "gpus": 8},
        "right": {"framework": "torchtitan", "plan.cross_entropy": "torch"},
        "text": TITAN + '[compile]\nenable = true\ncomponents = ["model"]\n',
    },
    {
        "path": "auto.json",
        "stated": {"cluster": "dgx-h100", "gpus": 8, "model": "llama3.1-8b", "seq_len": 1024},
        "refused": "train_batch_size",
        "text": AUTO,
    },
    {
        "path": "server.yaml",
        "stated": {"cluster": "dgx-h100"},
        "right": {"gpus": 4, "deployment.tensor": 2, "deployment.options.max_sequences": 128},
        "text": SERVER,
    },
    {
        "path": "task.yaml",
        "stated": {"cluster": "dgx-a100-80gb"},
        "right": {"gpus": 1, "deployment.tensor": 1, "deployment.options.max_context": 4096},
        "text": SKYPILOT,
    },
    {
        "path": "values.yaml",
        "stated": {"cluster": "dgx-h100"},
        "right": {"gpus": 2, "deployment.tensor": 2, "deployment.options.max_context": 4096},
        "text": CHART,
    },
    {
        "path": "llm.yaml",
        "stated": {"cluster": "dgx-a100-80gb"},
        "right": {"gpus": 2, "deployment.tensor": 2, "deployment.options.max_sequences": 64},
        "text": RAY_LLM,
    },
]
"""Name, what the command line states, fields or refusal by hand, and the text."""
