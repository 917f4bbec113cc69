"""Stages of different depth: what a framework's files say of them is read back."""

import pytest

import meshwright as mw

DEEPSEEK = {
    "model": "deepseek-v3",
    "cluster": "dgx-h100",
    "gpus": 256,
    "workload": {"seq_len": 4096, "global_batch": 256},
    "framework": "megatron-bridge",
    "plan": {"pipeline": 8, "expert": 8},
}


@pytest.mark.parametrize("target", ["megatron-lm", "torchtitan"])
def test_sixty_one_layers_on_eight_stages_come_back(target, tmp_path):
    """Seven stages of 8 layers and one of 5, which multi-token prediction follows where it is trained."""
    files = mw.export(DEEPSEEK, target).files
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    plan = mw.import_(
        tmp_path / next(iter(files)),
        cluster="dgx-h100",
        gpus=256,
        model="deepseek-v3",
        seq_len=4096,
        global_batch=256,
    ).scenario["plan"]
    assert [plan[name] for name in ("pipeline", "first_stage_layers", "last_stage_layers")] == [8, 8, 5]
