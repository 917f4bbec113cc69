"""Commands of ms-swift are read as the Megatron-LM that they start."""

import pytest

from core.errors import InputError
from meshwright.exporters.imports import read_launch

DENSE = """\
# 8 GPUs
NPROC_PER_NODE=8 CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \\
megatron sft \\
    --model Qwen/Qwen3-32B \\
    --tensor_model_parallel_size 8 \\
    --sequence_parallel true \\
    --micro_batch_size 1 \\
    --packing true \\
    --max_length 8192 \\
    --cross_entropy_loss_fusion true \\
    --no_save_optim true
"""


def read(text: str, tmp_path, **stated):
    path = tmp_path / "train.sh"
    path.write_text(text, encoding="utf-8")
    return read_launch(str(path), stated={"cluster": "dgx-h100", **stated}).scenario


def test_options_defaults_and_devices(tmp_path):
    scenario = read(DENSE, tmp_path)
    assert (scenario["model"], scenario["gpus"]) == ("Qwen/Qwen3-32B", 8)
    assert scenario["workload"] == {
        "seq_len": 8192,
        "global_batch": 16,
        "precision": "bf16",
        "dropout": False,
    }
    plan = scenario["plan"]
    assert (plan["tensor"], plan["sequence_parallel"], plan["zero"]) == (8, True, 1)


def test_a_checkpoint_of_megatron_names_its_model(tmp_path):
    text = DENSE.replace(
        "--model Qwen/Qwen3-32B", "--load Qwen3-30B-A3B-mcore --moe_shared_expert_overlap true"
    )
    scenario = read(text.replace("_size 8", "_size 1"), tmp_path)
    assert scenario["model"] == "Qwen3-30B-A3B"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("--packing true", "--train_type lora", "adapters of Megatron are not read"),
        ("megatron sft", "megatron rlhf", "post-training of ms-swift is not read"),
        ("--packing true", "--cpu_offloading true", "offloading is not modelled"),
    ],
)
def test_what_no_plan_states_is_refused_by_its_option(tmp_path, old, new, words):
    with pytest.raises(InputError, match=words):
        read(DENSE.replace(old, new), tmp_path)
