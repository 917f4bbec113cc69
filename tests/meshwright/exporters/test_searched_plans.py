"""Plans that a search finds for a framework have an option for every field in its own launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodels.cluster import clusters
from meshwright.exporters import export
from meshwright.exporters.launchers import launcher_of
from meshwright.jobs.exports import from_scenario
from planner.training.search import search
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.scenario_file import scenario_of
from simulator.setting import Setting
from simulator.workload import Training

QUESTIONS = [
    ("megatron-bridge", "llama3.1-8b", "dgx-h100", "bf16"),
    ("megatron-bridge", "qwen3-30b-a3b", "gb200-nvl72", "mxfp8"),
    ("megatron-bridge", "deepseek-v2-lite", "dgx-h100", "fp8"),
    ("megatron-core", "llama3.1-8b", "dgx-a100-80gb", "bf16"),
    ("megatron-core", "mixtral-8x7b", "dgx-h100", "bf16"),
    ("megatron-core", "deepseek-v2-lite", "gb200-nvl72", "mxfp8"),
    ("nemo", "mixtral-8x7b", "dgx-h100", "bf16"),
    ("nemo", "deepseek-v2-lite", "dgx-h100", "bf16"),
    ("primus", "mixtral-8x7b", "mi300x-8", "bf16"),
    ("deepspeed-zero1", "llama3.1-8b", "dgx-h100", "bf16"),
    ("torchtitan", "llama3.1-8b", "dgx-h100", "bf16"),
    ("deepspeed-zero3", "llama3.1-8b", "dgx-h100", "bf16"),
]


@pytest.mark.parametrize(("framework", "model", "cluster", "precision"), QUESTIONS)
def test_every_searched_plan_is_expressible(framework, model, cluster, precision):
    training = Training.model_validate({"seq_len": 4096, "global_batch": 64, "precision": precision})
    setting = Setting(models.get(model), clusters.get(cluster), training, frameworks.get(framework))
    target = launcher_of(framework, model)
    found = search(setting, 16, top=40, headroom=0.1)
    assert len(found.plans) > 1
    for plan in found.plans:
        made = export(from_scenario(scenario_of(found.setting, plan), "searched", Path(), "test"), target)
        gaps = [gap for gap in made.gaps if gap.startswith("plan.")]
        # DeepSpeed's configuration leaves checkpointing to the model's code.
        assert not [gap for gap in gaps if target != "deepspeed" or "checkpointing" not in gap]
