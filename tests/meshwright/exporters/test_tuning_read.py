"""Fine-tuning files as scenarios: read whole, or refused by the key that matters."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import InputError
from meshwright.exporters.imports import read_launch

AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_target_linear: true
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
optimizer: paged_adamw_8bit
bf16: auto
datasets: [{path: x}]
"""
FACTORY = """
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
cutoff_len: 8192
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""


def read(text: str, folder: Path, **stated: Any) -> dict[str, Any]:
    path = folder / "config.yaml"
    path.write_text(text)
    return read_launch(str(path), stated={"cluster": "dgx-h100", "gpus": 8, **stated}).scenario


def test_an_axolotl_file_states_adapters_and_batches(tmp_path: Path) -> None:
    scenario = read(AXOLOTL, tmp_path)
    assert scenario["workload"]["adapter"] == {"rank": 32, "base": "nf4"}
    assert (scenario["workload"]["seq_len"], scenario["workload"]["global_batch"]) == (4096, 64)
    assert (scenario["plan"]["micro_batch"], scenario["plan"]["recompute"]) == (2, "full")


def test_a_llama_factory_file_takes_its_defaults_and_the_stage_of_deepspeed(tmp_path: Path) -> None:
    scenario = read(FACTORY, tmp_path)
    assert (scenario["plan"]["zero"], scenario["plan"]["recompute"]) == (3, "full")
    assert scenario["workload"]["global_batch"] == 16
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}')
    beside = FACTORY.replace("examples/deepspeed/ds_z3_config.json", "ds.json")
    assert read(beside, tmp_path)["plan"]["zero"] == 2


def test_devices_that_a_command_sees_train() -> None:
    line = "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train --stage sft --model_name_or_path Qwen/Qwen3-8B"
    assert read_launch(line, stated={"cluster": "dgx-h100"}).scenario["gpus"] == 2


def test_a_script_that_is_not_read_is_named() -> None:
    with pytest.raises(InputError, match=r"runs 'train/mine.py', which is no launcher that is read"):
        read_launch("accelerate launch train/mine.py --epochs 3", stated={"cluster": "dgx-h100"})


def test_a_command_of_trl_is_read() -> None:
    line = (
        "accelerate launch --num_processes 4 -m trl sft --model_name_or_path Qwen/Qwen3-8B "
        "--use_peft --lora_r 16 --max_length 2048 --per_device_train_batch_size 4"
    )
    scenario = read_launch(line, stated={"cluster": "dgx-h100"}).scenario
    assert scenario["gpus"] == 4
    assert scenario["workload"]["adapter"] == {"rank": 16}
    assert scenario["workload"]["global_batch"] == 16


def test_a_file_of_accelerate_asks_for_model_and_batch(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --model"):
        read(ACCELERATE, tmp_path)
    scenario = read(ACCELERATE, tmp_path, model="llama3.1-8b", seq_len=4096, global_batch=64)
    assert scenario["plan"]["zero"] == 3


@pytest.mark.parametrize(
    ("degrees", "right"),
    [
        ("parallelism_config_cp_size: 4", {"context": 4, "context_algorithm": "all_gather", "data": 2}),
        ("sp_size: 8", {"context": 8, "context_algorithm": "ulysses", "data": 1}),
        ("tp_size: 2, cp_size: 2, cp_comm_strategy: alltoall", {"tensor": 2, "context_algorithm": "ring"}),
    ],
)
def test_degrees_of_accelerate_are_read(degrees: str, right: dict[str, Any], tmp_path: Path) -> None:
    text = ACCELERATE + f"parallelism_config: {{{degrees}}}\n"
    plan = read(text, tmp_path, model="qwen3-8b", seq_len=8192, global_batch=8)["plan"]
    assert {key: plan[key] for key in right} == right
    with pytest.raises(InputError, match=r"parallelism_config\.width: is not read"):
        read(text.replace("config: {", "config: {width: 2, "), tmp_path, model="qwen3-8b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (AXOLOTL.replace("qlora", "relora"), "adapters of the kind 'relora'"),
        (AXOLOTL + "tensor_paralel: 4\n", "tensor_paralel: is not read"),
        (FACTORY.replace("sft", "ppo"), "stage 'ppo' has other models"),
        (FACTORY + "use_galore: true\n", "use_galore: is not read"),
        (FACTORY + "optim: adafactor\n", "'adafactor' has other state than Adam"),
        (FACTORY.replace("ds_z3_config", "mine"), "is not beside the file"),
        (AXOLOTL.replace("lora_r: 32", "lora_r: many"), "rank of adapters: a whole number"),
    ],
)
def test_what_changes_the_step_is_refused_by_its_key(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(text, tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\n", "torchtune"),
        (
            '{\n  "pipe-parallel-size": 4,\n  "num-layers": 44,\n  "zero_optimization": {"stage": 1}\n}\n',
            "GPT-NeoX",
        ),
        ("model: {name: mpt_causal_lm}\nglobal_train_batch_size: 1024\n", "llm-foundry"),
        ("lora_query: true\ndata:\n  class_path: litgpt.data.Alpaca\n", "LitGPT"),
    ],
)
def test_a_file_of_a_launcher_that_is_not_read_is_refused_by_its_name(tmp_path, text, launcher):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=rf"is a file of {launcher} \(.*\), which is not read"):
        read_launch(str(file), stated={"cluster": "dgx-h100", "gpus": 8})
