"""Training of decoders that attend to an encoder: published steps, parameters, FLOPs, and what is refused."""

from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from simulator.models import models
from simulator.ops.counts import flops_per_token, model_parameters
from simulator.scenario import make_scenario
from simulator.scenario_file import scenario_of

T5_3B = {
    "name": "t5-3b",
    "layers": 24,
    "hidden": 2048,
    "heads": 32,
    "head_dim": 64,
    "feed_forward": 5120,
    "vocabulary": 29184,
    "max_sequence": 512,
    "activation": "geglu",
    "bias": True,
    "tied_embeddings": True,
    "encoder": {"layers": 24},
}
PLAN = {
    "tensor": 2,
    "micro_batch": 27,
    "zero": 1,
    "recompute": "none",
    "attention": "unfused",
    "sequence_parallel": False,
    "overlap_gradients": False,
    "overlap_parameters": False,
}


def step(gpus: int = 8, plan: dict | None = None, **workload):
    """A step of T5 3B on A100s."""
    stated = {"seq_len": 128, "source_len": 512, "global_batch": 2160, "dropout": True}
    return mw.simulate(
        {
            "model": T5_3B,
            "cluster": "dgx-a100-80gb",
            "gpus": gpus,
            "framework": "megatron-core",
            "workload": {**stated, **workload},
            "plan": {**PLAN, "data": gpus // 2, **(plan or {})},
        }
    ).to_dict()


@pytest.mark.parametrize(
    ("gpus", "tokens", "within"), [(8, 110_769, 0.03), (40, 515_100, 0.05), (160, 1_626_353, 0.15)]
)
def test_published_steps_of_t5_3b(gpus, tokens, within):
    """NeMo framework user guide, T5 performance (DGX SuperPOD of A100 80 GB, 512 tokens of the input a
    sequence, 2,160 sequences a step); layout of NeMo-Framework-Launcher, conf/training/t5/3b.yaml."""
    assert step(gpus)["step_time_s"] == pytest.approx(2160 * 512 / tokens, rel=within)


@pytest.mark.parametrize("name", ["flan-t5-xl", "bart-large", "whisper-large-v3-turbo"])
def test_the_stacked_model_has_the_parameters_of_the_two(name):
    model = models.get(name)
    assert model_parameters(model.stacked) == model_parameters(model) == model.stated_parameters
    assert model.stacked.layers == model.layers + model.encoder.layers
    assert model.stacked.stacked == model.stacked


@pytest.mark.parametrize("model", ["flan-t5-xl", T5_3B])
def test_a_saved_plan_is_the_same_step(model):
    asked = {"model": model, "cluster": "dgx-a100-80gb", "gpus": 2, "framework": "megatron-core"}
    asked |= {"workload": {"seq_len": 64, "source_len": 256, "global_batch": 8}, "plan": {"tensor": 2}}
    read = make_scenario(asked, "test", Path())
    written = scenario_of(read.setting, read.plan)
    assert isinstance(model, dict) or written["model"] == model
    assert mw.simulate(written).to_dict()["step_time_s"] == mw.simulate(asked).to_dict()["step_time_s"]


def test_flops_are_those_of_both_stacks_and_of_the_attention_between_them():
    model, target, source = models.get("flan-t5-xl"), 100, 700
    width, mlp, heads = 2048, 3 * 2048 * 5120, 32 * 64
    encoder = source * 24 * (2 * (4 * width * heads + mlp) + 4 * heads * source)
    keys = source * 24 * 2 * 2 * width * heads
    decoder = target * 24 * (2 * (6 * width * heads + mlp) + 4 * heads * (target + source))
    head = target * 2 * width * 32128
    found = flops_per_token(model.stacked, target, source=source) * target
    assert found == pytest.approx(encoder + keys + decoder + head, rel=1e-12)


def test_longer_inputs_take_longer_and_a_full_recomputation_keeps_less():
    short, long = step(source_len=256), step()
    assert short["step_time_s"] < long["step_time_s"]
    again = step(plan={"recompute": "full"})
    assert again["step_time_s"] > 1.15 * long["step_time_s"]
    kept, everything = (each["memory"]["stages"][0]["parts_bytes"]["activations"] for each in (again, long))
    assert kept < 0.3 * everything


@pytest.mark.parametrize(
    ("plan", "workload", "problem"),
    [
        ({"pipeline": 2, "data": 2}, {}, "pipeline stages of its step are not modelled"),
        ({"context": 2, "data": 2}, {}, "ranks that share its sequences are not modelled"),
        ({}, {"source_len": 513}, "more than the 512 that t5-3b reads"),
        ({}, {"adapter": {"rank": 16}}, "adapter: not modelled beside an encoder"),
    ],
)
def test_what_is_not_modelled_beside_an_encoder_is_refused(plan, workload, problem):
    with pytest.raises(InputError, match=problem):
        step(plan=plan, **workload)
