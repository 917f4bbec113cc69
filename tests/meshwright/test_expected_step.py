"""What a search says that its first plan is expected to take."""

import pytest

from hwmodels.cluster import clusters
from meshwright.reports.plans import describe_search
from meshwright.reports.verdict import expected_words
from planner.training.constraints import Constraints
from planner.training.prediction import Prediction
from planner.training.search import search
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.setting import Setting
from simulator.uncertainty import model_errors, over_promised
from simulator.workload import Training

FEW = Constraints.parse(fix=["tensor=1", "pipeline=1", "context=1", "micro_batch=1", "zero=1"])


def answer(model):
    setting = Setting(
        models.get(model),
        clusters.get("dgx-b200"),
        Training(seq_len=2048, global_batch=64),
        frameworks.get("megatron-bridge"),
    )
    found = search(setting, 8, FEW, top=1)
    prediction = Prediction.of(found.setting, found.plans)
    return found, prediction, describe_search(found, prediction, [{}] * len(found.plans))


def test_first_choices_with_experts_are_expected_to_take_longer():
    found, prediction, report = answer("qwen3-30b-a3b")
    longer = model_errors().over_promised["experts"]
    assert longer == over_promised(found.setting) > 1
    assert report["expected_step_s"] == pytest.approx(longer * report["plans"][0]["step_time_s"])
    (words,) = expected_words(prediction)
    assert words.startswith("Expect ") and f"took {longer:.2f} times" in words and "with experts" in words


def test_first_choices_of_dense_models_are_expected_as_predicted():
    found, prediction, report = answer("llama3.1-8b")
    assert over_promised(found.setting) == 1
    assert "expected_step_s" not in report and not expected_words(prediction)
