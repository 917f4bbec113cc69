"""Mapping tables: complete, and nothing is left out silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import InputError, UnknownNameError
from meshwright.exporters import TARGETS, export, exporter
from meshwright.exporters.facts import shape
from meshwright.exporters.imports import read_launch
from meshwright.exporters.megatron_lm import expert_layers
from meshwright.exporters.table import table
from meshwright.jobs.exports import from_scenario, question_of
from simulator.levers import LEVERS
from simulator.models import models
from simulator.plan import COLUMNS

TRAINING = [name for name in TARGETS if exporter(name).read is not None]


@pytest.mark.parametrize("target", TRAINING)
def test_every_plan_field_has_an_option_or_a_reason(target):
    known = table(exporter(target).table)
    told = known.options.keys() | known.derived.keys()
    # A lever that a plan states and a table lacks is named as a gap of that plan.
    assert {f"plan.{name}" for name in COLUMNS if name not in LEVERS} <= told


def test_a_schedule_that_megatron_lacks_is_named():
    plan = {"tensor": 8, "pipeline": 16, "schedule": "zb-h1", "recompute": "full"}
    scenario = {"model": "gpt3-175b", "cluster": "dgx-h100", "gpus": 1024, "plan": plan}
    scenario["workload"] = {"seq_len": 2048, "global_batch": 1536}
    made = export(from_scenario(scenario, "test", Path(), "test"), "megatron-lm")
    gap = next(gap for gap in made.gaps if gap.startswith("plan.schedule"))
    assert "zb-h1" in gap
    assert gap in made.files["train.sh"]


def test_refusals_name_the_place():
    with pytest.raises(UnknownNameError, match="did you mean 'megatron-lm'"):
        exporter("megatronlm")
    with pytest.raises(InputError, match="key 'plan' is missing"):
        question_of("memory-llama3-70b")
    with pytest.raises(InputError, match="only a saved"):
        question_of("gpt3-175b-1024-a100", 2)
    with pytest.raises(InputError, match="name its kind with --from"):
        read_launch("echo hello", stated={"cluster": "dgx-h100"})
    with pytest.raises(InputError, match="give --gpus"):
        read_launch(
            "python pretrain_gpt.py --num-layers 2", stated={"cluster": "dgx-h100", "model": "gpt3-175b"}
        )


def test_unknown_options_are_named_and_kept():
    command = (
        "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 2 "
        "--seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --lr 1e-4 --my-own-option 7"
    )
    found = read_launch(command, stated={"cluster": "dgx-h100", "model": "llama3.1-8b"})
    assert found.unknown == ("--my-own-option",)
    assert found.aside == {"--lr": "1e-4", "--my-own-option": "7"}
    assert found.scenario["gpus"] == 16
    assert found.scenario["plan"]["data"] == 8


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("([0]*1+[1]*3)", [0, 1, 1, 1]),
        ("2", [1, 0, 1, 0]),
        ("([0]*1+[1]*1)*2", [0, 1, 0, 1]),
        ("[1,1,0,1]", [1, 1, 0, 1]),
    ],
)
def test_patterns_of_expert_layers(text, layers):
    assert expert_layers(text, 4, "test") == layers


@pytest.mark.parametrize("text", ["__import__('os')", "[1]*10**9", "([0]*1", "[1]*3"])
def test_patterns_are_not_executed(text):
    with pytest.raises(InputError):
        expert_layers(text, 4, "test")


def test_a_model_with_the_usual_layers_has_no_shape_that_its_launcher_lacks():
    """`feed_forwards` and `tower_problem` of a plain model were once printed as not expressed."""
    for name in ("llama3-70b", "gpt3-175b"):
        facts = shape(models.get(name))
        assert not {"feed_forwards", "tower_problem"} & set(facts)
        assert not [fact for fact, value in facts.items() if value in ([], "")]
