"""Launch files of kinds that were read in part: read whole, or refused by the key that matters."""

from pathlib import Path

import pytest

from core.errors import InputError
from meshwright.exporters.imports import read_launch

GPT = (
    "torchrun --nproc_per_node=8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 32 "
    "--hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
    "--micro-batch-size 1 --global-batch-size 256 --vocab-size 32000 --bf16"
)
TITAN_2024 = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 8192
data_parallel_degree = -1
tensor_parallel_degree = 4
compile = true
[experimental]
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "full"
[float8]
enable_float8_linear = true
"""
NEMO = """
TP=4
torchrun --nproc_per_node=8 megatron_llama_pretraining.py trainer.devices=8 trainer.num_nodes=2 \\
  trainer.precision=bf16 model.num_layers=40 model.hidden_size=5120 model.ffn_hidden_size=13824 \\
  model.num_attention_heads=40 model.micro_batch_size=1 model.global_batch_size=32 \\
  model.tensor_model_parallel_size=${TP} model.pipeline_model_parallel_size=1 model.sequence_parallel=True \\
  model.encoder_seq_length=4096 model.activations_checkpoint_granularity=selective
"""


def read(text, **stated):
    return read_launch(text, stated={"cluster": "dgx-h100", **stated})


def titan(tmp_path, text):
    path = tmp_path / "train.toml"
    path.write_text(text)
    return read(str(path), gpus=64)


def test_a_gated_mlp_without_a_width_is_two_thirds_of_the_plain_one():
    """Megatron-LM, training/arguments.py: int((4 * hidden * 2 / 3) / 64) * 64."""
    assert read(f"{GPT} --swiglu").scenario["model"]["feed_forward"] == 10880
    assert read(GPT).scenario["model"]["feed_forward"] == 16384


@pytest.mark.parametrize("method", ["--recompute-method uniform --recompute-num-layers 4", ""])
def test_recomputation_of_all_layers_is_full(method):
    assert read(f"{GPT} --recompute-granularity full {method}").scenario["plan"]["recompute"] == "full"


def test_a_block_of_all_layers_is_full_and_of_some_is_refused():
    block = f"{GPT} --recompute-granularity full --recompute-method block --recompute-num-layers"
    assert read(f"{block} 32").scenario["plan"]["recompute"] == "full"
    with pytest.raises(InputError, match=r"--recompute-num-layers.*8 of 32"):
        read(f"{block} 8")


def test_attention_and_gradients_are_read_from_their_options():
    plan = read(f"{GPT} --attention-backend unfused --main-grads-dtype bf16").scenario["plan"]
    assert (plan["attention"], plan["gradient_bytes"]) == ("unfused", 2)
    assert "attention" not in read(f"{GPT} --attention-backend auto").scenario["plan"]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--optimizer sgd", "--optimizer.*'sgd' has other state than Adam"),
        ("--window-attn-skip-freq 4", "name the model with --model"),
        ("--moe-expert-capacity-factor 1.0", "dropped tokens"),
        ("--enable-cuda-graph", "--cuda-graph-impl"),
        ("--zero-stage 3", "--zero-stage.*is not read"),
        ("--tensor-model-paralel-size 8", "did you mean '--tensor-model-parallel-size'"),
    ],
)
def test_an_option_that_decides_a_run_is_refused_by_its_name(option, problem):
    with pytest.raises(InputError, match=problem):
        read(f"{GPT} {option}")


def test_a_published_vocabulary_is_known_by_its_file():
    small = "torchrun --nproc_per_node=1 pretrain_gpt.py --num-layers 10 --hidden-size 640 --seq-length 1024 "
    small += "--num-attention-heads 8 --max-position-embeddings 1024 --micro-batch-size 8 --fp16 "
    back = read_launch(f"{small} --vocab-file data/gpt2-vocab.json", stated={"cluster": "dgx-h100"})
    assert back.scenario["model"]["vocabulary"] == 50257
    with pytest.raises(InputError, match="give --vocabulary"):
        read_launch(f"{small} --vocab-file data/own-vocab.json", stated={"cluster": "dgx-h100"})


def test_a_device_without_flash_attention_runs_it_unfused():
    found = read(GPT.replace("--bf16", "--fp16"), cluster="dgx-1v")
    assert found.scenario["plan"]["attention"] == "unfused"
    assert any("flash attention" in note for note in found.notes)


def test_keys_of_torchtitan_of_2024_are_those_of_today(tmp_path):
    scenario = titan(tmp_path, TITAN_2024).scenario
    plan, workload = scenario["plan"], scenario["workload"]
    assert (plan["tensor"], plan["data"], plan["micro_batch"], plan["recompute"]) == (4, 16, 2, "full")
    assert (workload["precision"], workload["global_batch"]) == ("fp8", 32)


def test_a_launch_that_does_not_compile_is_eager(tmp_path):
    assert titan(tmp_path, TITAN_2024).scenario["framework"] == "torchtitan"
    eager = TITAN_2024.replace("compile = true", "compile = false")
    assert titan(tmp_path, eager).scenario["framework"] == "torchtitan-eager"


@pytest.mark.parametrize("line", ["tensor_paralel_degree = 8", "expert_parallel_mode = 'none'"])
def test_an_unknown_key_of_a_deciding_section_is_refused(tmp_path, line):
    with pytest.raises(InputError, match=line.split()[0]):
        titan(tmp_path, f"{TITAN_2024}\n[parallelism]\n{line}\n")


def test_keys_of_two_times_that_disagree_are_refused(tmp_path):
    with pytest.raises(InputError, match="disagree"):
        titan(tmp_path, f"{TITAN_2024}\n[parallelism]\ntensor_parallel_degree = 8\n")


def test_overrides_of_nemo_are_options_of_megatron():
    scenario = read(NEMO).scenario
    plan = scenario["plan"]
    assert (scenario["model"], scenario["gpus"]) == ("llama2-13b", 16)
    assert scenario["workload"]["global_batch"] == 32
    assert (plan["tensor"], plan["data"], plan["recompute"]) == (4, 4, "selective")
    assert plan["sequence_parallel"]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("trainer.precision=bf16x", "trainer.precision"),
        ("model.tensor_model_paralel_size=8", "model.tensor_model_paralel_size"),
        ("model.activation=tanh", "model.activation"),
    ],
)
def test_an_override_that_is_not_read_is_refused(override, problem):
    with pytest.raises(InputError, match=problem):
        read(NEMO.rstrip() + f" {override}")


def test_inputs_that_people_sent_are_read_or_refused():
    folder = Path(__file__).parents[4] / "shared" / "inputs"
    if not folder.is_dir():
        pytest.skip("the shared inputs are not here")
    plan = read(str(folder / "21-torchtitan-2024.toml"), gpus=128).scenario["plan"]
    assert (plan["tensor"], plan["data"], plan["micro_batch"]) == (8, 16, 2)
    nemo = read(str(folder / "24-nemo-hydra.sh")).scenario
    assert (nemo["workload"]["global_batch"], nemo["plan"]["recompute"]) == (32, "selective")


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (
            '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "zero_quantised_weights": true}}',
            "zero_quant",
        ),
        (
            '{"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_everything": true}}',
            "offload_every",
        ),
        ('{"train_batch_size": 8, "optimizer": {"type": "Lion"}}', "optimizer.type=Lion"),
        ('{"train_batch_size": 8, "tensor_parallel": {"pipelines": 4}}', "tensor_parallel.pipelines"),
    ],
)
def test_a_deciding_key_of_deepspeed_that_is_not_read_is_refused(
    config: str, key: str, tmp_path: Path
) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(config)
    stated = {"cluster": "dgx-h100", "model": "llama3.1-8b", "gpus": 8, "seq_len": 2048}
    with pytest.raises(InputError) as error:
        read_launch(str(path), stated=stated)
    assert key in str(error.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.moe_expert_capacity_factor=1.0", "dropped tokens"),
        ("model.tensor_model_paralel_size=8", "did you mean"),
        ("optimizer.optimizer=muon", "not that of Adam"),
        ("model.activation_offload_layers=4", "is not read"),
    ],
)
def test_a_deciding_override_of_megatron_bridge_is_refused(override: str, message: str) -> None:
    line = f"torchrun --nproc-per-node 8 run_recipe.py --recipe llama3_8b_pretrain_config {override}"
    stated = {"cluster": "dgx-h100", "seq_len": 8192, "global_batch": 128}
    with pytest.raises(InputError) as error:
        read_launch(line, target="megatron-bridge", stated=stated)
    assert message in str(error.value)
