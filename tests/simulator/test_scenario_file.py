"""A setting and a plan, written as a scenario, read back as they were."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.loading import parse_text, read_mapping
from core.yaml_text import yaml_text
from hwmodels.device import devices
from meshwright.questions.scenarios import shipped_scenarios
from planner.training.prediction import Prediction
from simulator.models import models
from simulator.scenario import make_scenario
from simulator.scenario_file import reference, scenario_of
from simulator.schedules import get_schedule

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
NUMBERS = st.one_of(
    st.integers(-(10**18), 10**18),
    st.floats(1e-20, 1e17),
    st.booleans(),
    st.none(),
)
AWKWARD = st.sampled_from(
    ["1e9", "on", "no", "null", "~", "1:30", "0x1f", "2026-01-01", "=1", "-", "", "1_0", ".5"]
)
DATA = st.recursive(
    st.one_of(TEXT, AWKWARD, NUMBERS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4))
def test_yaml_is_read_back_unchanged(data):
    assert parse_text(yaml_text(data), "text") == data


def planned():
    """Shipped scenarios with a plan, on clusters of one kind."""
    for name, path in shipped_scenarios().items():
        data = read_mapping(path)
        if "plan" in data and "placement" not in data:
            yield pytest.param({**data, "variations": {}}, path, id=name)


@pytest.mark.parametrize(("data", "path"), list(planned()))
def test_a_written_scenario_has_the_same_prediction(data, path):
    asked = make_scenario(data, str(path), path.parent)
    text = yaml_text(scenario_of(asked.setting, asked.plan, asked.title))
    again = make_scenario(parse_text(text, "text"), "text", Path("/elsewhere"))
    assert (again.title, again.plan) == (asked.title or again.title, asked.plan)
    assert again.setting.framework.model_dump() == asked.setting.framework.model_dump()
    assert (again.setting.model, again.setting.cluster) == (asked.setting.model, asked.setting.cluster)
    if get_schedule(asked.plan.schedule).has_closed_form:
        first, second = (Prediction.of(one.setting, one.plan) for one in (asked, again))
        assert first.step.time == second.step.time
        assert (first.memory.peak == second.memory.peak).all()


def test_a_device_file_is_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    device = devices.get("a100-sxm-80gb").model_dump(mode="json")
    shipped = devices.folder.parent / "calibrations" / "a100-sxm.yaml"
    (tmp_path / "here" / "own.calibration.yaml").write_bytes(
        shipped.read_bytes().replace(b"\nresiduals:", b"\n#")
    )
    device |= {"name": "own", "aliases": [], "calibration": "./own.calibration.yaml"}
    (tmp_path / "here" / "own.yaml").write_text(yaml_text(device), encoding="utf-8")
    cluster = read_mapping(shipped.parents[1] / "clusters" / "nvidia_dgx.yaml")["entries"][0]
    data = {
        "model": "llama2-7b",
        "cluster": {**cluster, "name": "own-nodes", "device": "./own.yaml"},
        "gpus": 16,
        "workload": {"seq_len": 2048, "global_batch": 64},
        "plan": {"tensor": 2},
    }
    monkeypatch.chdir(tmp_path / "here")
    asked = make_scenario(data, "here", Path())
    first, written = Prediction.of(asked.setting, asked.plan), scenario_of(asked.setting, asked.plan)
    monkeypatch.chdir(tmp_path)
    again = make_scenario(written, "there", tmp_path)
    assert Prediction.of(again.setting, again.plan).step.time == first.step.time


@pytest.mark.parametrize("name", ["qwen3-vl-8b", "qwen2.5-vl-7b", "llama3.1-70b"])
def test_a_model_is_referred_to_by_the_name_that_has_its_tower(name):
    assert reference(models, models.get(name)) == name
