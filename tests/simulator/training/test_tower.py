"""Vision towers in training: what they cost, and what they leave as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from planner.training.mechanisms import mechanisms
from planner.training.metrics import step_flops_per_token
from simulator.layout.tower import step_tower
from simulator.ops.tower import tower_parameters
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training import predict
from simulator.training.step_graph.build import simulate

PLAN = {"tensor": 2, "sequence_parallel": True, "zero": 1}


def scenario(plan=PLAN, model="qwen3-vl-8b", seq_len=4096, **workload):
    data = {
        "model": model,
        "cluster": "dgx-h100",
        "gpus": 16,
        "workload": {"seq_len": seq_len, "global_batch": 64, **workload},
        "plan": plan,
    }
    return make_scenario(data, "test", Path())


def step(**how):
    found = scenario(**how)
    return float(predict(found.setting, Plans.of(found.plan)).time[0])


def memory(**how):
    from simulator.layout.parameters import parameters
    from simulator.layout.stages import Stages
    from simulator.training.memory import memory as usage

    found = scenario(**how)
    plans = Plans.of(found.plan)
    stages = Stages.of(found.setting, plans)
    return usage(found.setting, plans, stages, parameters(found.setting, plans, stages)).stages[:, 0]


def test_no_images_change_nothing():
    assert step(images=[]) == step()
    assert (memory(images=[]) == memory()).all()


def test_a_trained_tower_costs_more_than_a_frozen_one():
    text, frozen, trained = step(), step(images="2x1280x720"), step(images="2x1280x720", tower="trained")
    assert text < frozen < trained
    assert trained - text > 2.5 * (frozen - text)


def test_time_grows_with_pictures():
    """Small pictures are bound by launches, whatever their number."""
    steps = [step(images=images, seq_len=8192) for images in ("2x1280x720", "4x1280x720", "8x1280x720")]
    assert np.all(np.diff(steps) > 0)
    assert step(images="1x640x480") == pytest.approx(step(images="2x640x480"))


@pytest.mark.parametrize("tower", ["frozen", "trained"])
@pytest.mark.parametrize("pipeline", [1, 2])
def test_the_closed_form_agrees_with_the_engine(tower, pipeline):
    found = scenario(plan=PLAN | {"pipeline": pipeline}, images="2x1280x720", tower=tower)
    closed = float(predict(found.setting, Plans.of(found.plan)).time[0])
    assert closed == pytest.approx(simulate(found.setting, found.plan).period, rel=0.04)


def test_the_first_stage_alone_holds_the_tower():
    two = {"plan": PLAN | {"pipeline": 2}}
    text, frozen = memory(**two), memory(**two, images="2x1280x720")
    assert frozen[0] > text[0]
    assert frozen[-1] == text[-1]
    trained = memory(**two, images="2x1280x720", tower="trained")
    assert trained[0] > frozen[0]
    assert trained[-1] == text[-1]


def test_a_trained_tower_is_held_as_parameters():
    found = scenario(images="2x1280x720", tower="trained")
    counted = (
        sum(float(np.max(op.parameters)) for op in step_tower(found.setting, Plans.of(found.plan)))
        * PLAN["tensor"]
    )
    tower = found.setting.model.tower
    assert counted == pytest.approx(tower_parameters(tower) - tower.vectors, rel=0.01)


def test_flops_count_the_tower():
    def of(**workload):
        found = scenario(**workload)
        return step_flops_per_token(found.setting, Plans.of(found.plan))[0]

    frozen, trained = (of(images="2x1280x720", tower=tower) - of() for tower in ("frozen", "trained"))
    assert trained == pytest.approx(3 * frozen)


def test_no_measured_run_bears_a_tower_out():
    found = scenario(images="1x640x480")
    assert "a vision tower" in mechanisms(found.setting, found.plan)
    assert "a vision tower" not in mechanisms(scenario().setting, found.plan)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "llama3-8b", "images": "1x640x480"}, "workload.images: llama3-8b has no vision tower"),
        ({"seq_len": 1024, "images": "2x1280x720"}, "the images have 1,760 tokens; a sequence has 1,024"),
        ({"tower": "trained"}, "needs `images`"),
        ({"images": "1x640x480", "tower": "melted"}, "must be 'frozen' or 'trained'"),
        ({"images": "1x640x480", "adapter": {"rank": 8}}, "images beside `adapter` or `lengths`"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        scenario(**changes)
