"""Launch files as the projects' own examples have them become scenarios, or the refusal says why.

Option names and values are those of the named files; paths, comments and options that no prediction reads are
left out.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.errors import InputError
from meshwright.exporters.imports import read_launch
from meshwright.exporters.table import table
from planner.training.prediction import simulate_plan
from simulator.scenario import make_scenario


def predicted(found) -> float:
    """Seconds of a step."""
    scenario = make_scenario(found.scenario, "imported", Path())
    assert scenario.plan is not None
    return float(simulate_plan(scenario.setting, scenario.plan).prediction.step.time[0])


LAUNCH = """\
GPUS_PER_NODE=8
NUM_NODES={nodes}
MASTER_ADDR=${{MASTER_ADDR:-localhost}}
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
"""
GPT3 = (
    LAUNCH
    + """\
MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # comment \\
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --fp16
    --lr 6.0e-5
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size 8
    --pipeline-model-parallel-size 16
)
torchrun ${{DISTRIBUTED_ARGS[@]}} pretrain_gpt.py \\
    ${{MODEL_ARGS[@]}} \\
    ${{TRAINING_ARGS[@]}} \\
    ${{PARALLEL_ARGS[@]}}
"""
)
"""NVIDIA/Megatron-LM, examples/gpt3/train_gpt3_175b_distributed.sh at 157006d."""


def test_megatron_gpt3_says_why_it_does_not_run_on_one_node():
    with pytest.raises(InputError, match="8 devices do not divide by tensor 8 x context 1 x pipeline 16"):
        read_launch(GPT3.format(nodes=1), stated={"cluster": "dgx-h100"})


def test_megatron_gpt3_on_128_nodes():
    found = read_launch(GPT3.format(nodes=128), stated={"cluster": "dgx-h100", "vocabulary": 51200})
    assert found.scenario["model"] == "gpt3-175b"
    assert found.scenario["gpus"] == 1024
    assert found.scenario["workload"] == {
        "seq_len": 2048,
        "global_batch": 1536,
        "precision": "fp16",
        "dropout": True,
    }
    plan = found.scenario["plan"]
    assert (plan["tensor"], plan["pipeline"], plan["data"], plan["zero"]) == (8, 16, 8, 0)
    assert not found.unknown
    assert found.aside["--rampup-batch-size"] == "16 16 5859375"
    assert 1 < predicted(found) < 100


LLAMA3 = (
    LAUNCH
    + """\
DTYPE="fp8"
TOKENIZER_ARG=${{3:-"MOCK"}}
SCRIPT="pretrain_gpt.py"
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --attention-dropout 0.0 --hidden-dropout 0.0
    --swiglu --apply-layernorm-1p --untie-embeddings-and-output-weights --disable-bias-linear
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size 128 --bf16)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
    )
fi
DDP_ARGS=(--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
TRAINING_ARGS+=("${{DDP_ARGS[@]}}")
DATA_ARGS=()
if [[ "$TOKENIZER_ARG" == "MOCK" ]] || [[ -z "$TOKENIZER_ARG" ]]; then
    DATA_ARGS+=("--tokenizer-type NullTokenizer" "--vocab-size 128256")
else
    DATA_ARGS+=("--tokenizer-model $TOKENIZER_ARG")
fi
torchrun ${{DISTRIBUTED_ARGS[@]}} "$SCRIPT" ${{MODEL_ARGS[@]}} ${{TRAINING_ARGS[@]}} ${{DTYPE_ARGS[@]}} \\
    --tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel ${{DATA_ARGS[@]}}
"""
)
"""NVIDIA/Megatron-LM, examples/llama/train_llama3_8b_h100_fp8.sh at 157006d."""


def test_megatron_llama3_in_fp8_with_its_conditions():
    found = read_launch(LLAMA3.format(nodes=1), stated={"cluster": "dgx-h100"})
    assert found.scenario["workload"]["precision"] == "fp8"
    assert found.scenario["plan"]["zero"] == 1
    model = found.scenario["model"]
    assert isinstance(model, dict) and model["norm"] == "layernorm"  # as the example has it
    assert not found.unknown
    assert 1 < predicted(found) < 100


def test_conditions_that_need_a_file_are_not_evaluated():
    text = LAUNCH.format(nodes=1) + (
        'if [ -f "$HOME/flag" ]; then\nMORE=(--swiglu)\nfi\n'
        "torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py --seq-length 2048 --micro-batch-size 1 --bf16 "
        "${MORE[@]}\n"
    )
    found = read_launch(text, target="megatron-lm", stated={"cluster": "dgx-h100", "model": "llama3.1-8b"})
    assert any("1 lines under conditions were not evaluated" in note for note in found.notes)


MIXTRAL = (
    LAUNCH
    + """\
torchrun ${{DISTRIBUTED_ARGS[@]}} pretrain_gpt.py --disable-bias-linear --seq-length 4096 \\
    --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \\
    --num-attention-heads 32 --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm \\
    --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights --num-query-groups 8 \\
    --group-query-attention --no-masked-softmax-fusion --no-position-embedding \\
    --num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall \\
    --overlap-param-gather --overlap-grad-reduce \\
    --micro-batch-size 1 --global-batch-size 256 --bf16 --tensor-model-parallel-size 1 \\
    --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --use-distributed-optimizer \\
    --sequence-parallel \\
    --tokenizer-type Llama2Tokenizer --tokenizer-model $TOKENIZER
"""
)
"""NVIDIA/Megatron-LM, examples/mixtral/train_mixtral_8x7b_distributed.sh (the whole model)."""


def test_megatron_mixtral():
    found = read_launch(MIXTRAL.format(nodes=8), stated={"cluster": "dgx-h100"})
    assert found.scenario["model"] == "mixtral-8x7b"
    plan = found.scenario["plan"]
    assert (plan["pipeline"], plan["expert"], plan["data"], plan["zero"]) == (4, 8, 16, 1)
    assert any("TOKENIZER" in note for note in found.notes)
    assert 0.5 < predicted(found) < 100


ZERO3 = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": 2,
    "wall_clock_breakdown": False,
}
"""The ZeRO-3 configuration of Hugging Face's DeepSpeed guide."""


def test_deepspeed_zero3_with_automatic_values(tmp_path):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(ZERO3))
    given = {"cluster": "dgx-a100-80gb", "model": "llama2-7b", "gpus": 16, "seq_len": 4096}
    found = read_launch(str(path), stated={**given, "precision": "bf16"})
    assert found.target == "deepspeed"
    assert found.scenario["plan"]["zero"] == 3 and found.scenario["plan"]["micro_batch"] == 2
    assert found.scenario["workload"]["global_batch"] == 32
    assert any("bf16.enabled" in note for note in found.notes)
    assert 0.5 < predicted(found) < 100


@pytest.mark.parametrize(
    ("offload", "words"),
    [
        ({"device": "disk"}, r"offload_optimizer\.device: a device of cpu, nvme or none is needed"),
        ({"device": "cpu", "ratio": 1.5}, r"offload_optimizer\.ratio: a number from 0 to 1 is needed"),
    ],
)
def test_deepspeed_offloading_to_nowhere_is_refused_with_its_key(tmp_path, offload, words):
    path = tmp_path / "ds_config.json"
    zero = {**ZERO3["zero_optimization"], "offload_optimizer": offload}
    path.write_text(json.dumps({**ZERO3, "zero_optimization": zero}))
    given = {"cluster": "dgx-a100-80gb", "model": "llama2-7b", "gpus": 16, "seq_len": 4096}
    with pytest.raises(InputError, match=words):
        read_launch(str(path), stated=given)


def test_deepspeed_batch_sizes_must_agree(tmp_path):
    path = tmp_path / "ds_config.json"
    sizes = {"train_batch_size": 100, "gradient_accumulation_steps": 2, "train_micro_batch_size_per_gpu": 4}
    path.write_text(json.dumps({**sizes, "zero_optimization": {"stage": 1}}))
    given = {"cluster": "dgx-a100-80gb", "model": "llama2-7b", "gpus": 16, "seq_len": 4096}
    with pytest.raises(InputError, match="4 x 2 x 16 = 128, not train_batch_size 100"):
        read_launch(str(path), stated=given)


@pytest.mark.parametrize("config", sorted(table("torchtitan-0.3.yaml").configs))
def test_torchtitan_shipped_configurations(config):
    module = table("torchtitan-0.3.yaml").configs[config]["model_spec"].partition("/")[0]
    command = (
        f"torchrun --nnodes 16 --nproc-per-node 8 -m torchtitan.train --module {module} --config {config}"
    )
    found = read_launch(command, stated={"cluster": "dgx-b200"})
    assert found.scenario["model"] in table("torchtitan-0.3.yaml").models
    assert found.scenario["gpus"] == 128
    assert not found.unknown
    assert 0.01 < predicted(found) < 100


def test_torchtitan_python_is_read_not_run(tmp_path):
    path = tmp_path / "config_registry.py"
    path.write_text(
        "from torchtitan.models.llama3 import model_registry\nimport os\nos.system('touch ran')\n"
        "def base() -> Trainer.Config:\n    model_spec = model_registry('70B')\n"
        "    return Trainer.Config(model_spec=model_spec,\n"
        "        training=TrainingConfig(local_batch_size=8, seq_len=8192),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=8),\n"
        "        activation_checkpoint=FullAC.Config())\n"
        "def mine() -> Trainer.Config:\n    config = base()\n"
        "    config.parallelism.tensor_parallel_degree = 4\n"
        "    config.training.local_batch_size = 2\n    return config\n"
    )
    found = read_launch(str(path), stated={"cluster": "dgx-h100", "gpus": 64})
    assert not (tmp_path / "ran").exists() and not Path("ran").exists()
    assert found.scenario["model"] == "llama3.1-70b"
    plan = found.scenario["plan"]
    assert (plan["tensor"], plan["data"], plan["micro_batch"], plan["recompute"]) == (4, 16, 2, "full")


def test_torchtitan_old_toml(tmp_path):
    path = tmp_path / "llama3_8b.toml"
    path.write_text(
        '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
        "[parallelism]\ndata_parallel_replicate_degree = 1\ndata_parallel_shard_degree = -1\n"
        "tensor_parallel_degree = 2\n[activation_checkpoint]\n"
        'mode = "selective"\nselective_ac_option = "op"\n'
    )
    found = read_launch(str(path), stated={"cluster": "dgx-h100", "gpus": 16})
    assert found.scenario["model"] == "llama3.1-8b"
    assert found.scenario["plan"]["zero"] == 3 and found.scenario["plan"]["recompute"] == "selective"


RECIPE = """\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: '32'
ARGS:
  num_layers: 94
  hidden_size: 4096
  ffn_hidden_size: 12288
  num_attention_heads: 64
  kv_channels: 128
  max_position_embeddings: 4096
  group_query_attention: true
  num_query_groups: 4
  qk_layernorm: true
  normalization: RMSNorm
  swiglu: true
  disable_bias_linear: true
  untie_embeddings_and_output_weights: true
  position_embedding_type: rope
  num_experts: 128
  moe_ffn_hidden_size: 1536
  moe_router_topk: 8
  moe_router_pre_softmax: false
  attention_dropout: 0.0
  hidden_dropout: 0.0
  seq_length: 4096
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 8
  expert_model_parallel_size: 32
  expert_tensor_parallel_size: 1
  num_layers_per_virtual_pipeline_stage: 3
  account_for_embedding_in_pipeline_split: true
  account_for_loss_in_pipeline_split: true
  use_distributed_optimizer: true
  sequence_parallel: true
  moe_token_dispatcher_type: flex
  overlap_moe_expert_parallel_comm: true
  recompute_granularity: selective
  recompute_modules: [moe_act, layernorm]
  micro_batch_size: 1
  global_batch_size: 2048
  bf16: true
"""
"""NVIDIA/Megatron-LM, examples/moe_recipes/qwen3_235b/h100/bf16_256GPU_TP2PP8EP32.yaml at 256f606."""


def test_megatron_recipe(tmp_path):
    path = tmp_path / "bf16_256GPU_TP2PP8EP32.yaml"
    path.write_text(RECIPE)
    found = read_launch(str(path), stated={"cluster": "dgx-h100"})
    assert (found.target, found.scenario["model"], found.scenario["gpus"]) == (
        "megatron-lm",
        "qwen3-235b-a22b",
        256,
    )
    plan = found.scenario["plan"]
    assert (plan["tensor"], plan["pipeline"], plan["expert"], plan["virtual_pipeline"]) == (2, 8, 32, 4)
    assert (plan["first_stage_layers"], plan["last_stage_layers"]) == (11, 11)
    assert any("256 GPUs are read from the file's name" in note for note in found.notes)
    assert not found.unknown
    assert 5 < predicted(found) < 60


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("--encoder-num-layers 12", "encoder-decoder models are not modelled"),
        ("--retro-add-retriever", "retrieval is not modelled"),
        ("--img-h 336", "vision encoders are not modelled"),
        ("--offload-optimizer-states", "offloading is not modelled"),
        (
            "--hybrid-attention-ratio 0.08",
            "layers of several kinds are not read from options; name the model",
        ),
    ],
)
def test_megatron_options_without_a_model_of_them_are_refused(option, reason):
    with pytest.raises(InputError, match=f"{option.split()[0]}: {reason}"):
        read_launch(
            MIXTRAL.format(nodes=8).replace("--bf16", f"--bf16 {option}"), stated={"cluster": "dgx-h100"}
        )


def test_megatron_bert_masks_no_keys():
    text = GPT3.format(nodes=128).replace("pretrain_gpt.py", "pretrain_bert.py")
    found = read_launch(text, stated={"cluster": "dgx-h100", "vocabulary": 30592})
    assert found.scenario["workload"]["causal"] is False
    assert any("BERT" in note for note in found.notes)


CASE = """\
SCALE="8B" # or "800M"
case "${SCALE}" in
    "800M")
        TP=1
        ;;
    "8B"|"9B")
        TP=4
        ;;
    *)
        TP=2
        ;;
esac
options=" --tensor-model-parallel-size ${TP} --seq-length 4096 --micro-batch-size 1 --bf16"
bash -c "python ${ROOT:-"/opt"}/pretrain_gpt.py   ${options}"
"""
"""The case statement of examples/mamba/train.sh, the nested command of examples/megatron_fsdp/*.sh."""


def test_case_statements_and_nested_commands_are_read():
    given = {"cluster": "dgx-h100", "model": "llama3.1-8b", "gpus": 8}
    found = read_launch(CASE, target="megatron-lm", stated=given)
    assert found.scenario["plan"]["tensor"] == 4
    assert not found.notes


def test_options_in_other_files_are_said():
    with pytest.raises(InputError, match=r"takes its options from \./CONFIG\.sh; give a file"):
        read_launch("PP=2\nTP=$((64/PP))\n. ./CONFIG.sh\nexit 0\n", stated={"cluster": "dgx-h100"})


def test_deepspeed_experts_and_compressed_gradients(tmp_path):
    path = tmp_path / "ds_config.json"
    given = {"cluster": "dgx-h100", "model": "qwen3-30b-a3b", "gpus": 16, "seq_len": 4096}
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
    }
    path.write_text(json.dumps({**config, "expert_parallel": {"enabled": True, "autoep_size": 8}}))
    assert read_launch(str(path), stated=given).scenario["plan"]["expert"] == 8
    path.write_text(json.dumps({**config, "optimizer": {"type": "OneBitAdam"}}))
    with pytest.raises(InputError, match="compressed gradients are not modelled"):
        read_launch(str(path), stated=given)


def test_torchtitan_module_of_its_own_package(tmp_path):
    path = tmp_path / "qwen3" / "config_registry.py"
    path.parent.mkdir()
    text = (
        "from . import model_registry\ndef mine() -> Trainer.Config:\n"
        "    model_spec = model_registry('{flavor}')\n"
        "    return Trainer.Config(model_spec=model_spec,\n"
        "        training=TrainingConfig(local_batch_size=1, seq_len=4096))\n"
    )
    path.write_text(text.format(flavor="14B"))
    given = {"cluster": "dgx-h100", "gpus": 16}
    assert read_launch(str(path), stated=given).scenario["model"] == "qwen3-14b"
    path.write_text(text.format(flavor="debugmodel"))
    with pytest.raises(InputError, match="'qwen3/debugmodel' is not in the catalogue: give --model"):
        read_launch(str(path), stated=given)
