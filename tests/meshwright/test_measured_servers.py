"""Evidence beside a deployment: measured servers of its model, device, engine and layout."""

import pytest

import meshwright as mw
from hwmodels.device import devices
from meshwright.measured.servers import LAYOUT, evidence, measured_servers
from simulator.models import models
from simulator.serving.engines import engines

PLACE = {"model": "qwen3-32b", "device": "h100-sxm", "engine": "tensorrt-llm"}


def test_rows_name_models_devices_and_engines_of_the_catalogue():
    families = {engine.engine for engine in engines}
    for row in measured_servers():
        assert row["model"] in models.names()
        assert row["device"] in devices.names()
        assert row["engine"] in families
        assert int(row["rows"]) > 0


@pytest.mark.parametrize(
    ("place", "layout", "closeness"),
    [
        ({}, ("fp8", "2", "1", "1"), 3),
        ({}, ("fp8", "3", "1", "1"), 2),
        ({"model": "llama2-7b"}, ("bf16", "1", "1", "1"), 1),
        ({"device": "l4"}, ("bf16", "1", "1", "1"), 0),
    ],
)
def test_the_nearest_rows_count(place, layout, closeness):
    found = evidence(PLACE | place, dict(zip(LAYOUT, layout, strict=True)))
    assert found.closeness == closeness
    assert (found.rows > 0) == (closeness > 0)
    assert (PLACE | place)["device"] in found.words(PLACE | place)


@pytest.mark.slow
def test_the_fastest_for_one_user_has_the_least_latency_of_a_lone_request():
    asked = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 4, "isl": 1000, "osl": 200}
    found = mw.deploy(**asked, rate=4.0, ttft=0.5, tpot=0.03, split=False, limit={"pipeline": "1"}).search
    plan, first, token = found.fastest
    assert found.plans[0].groups[0].shape.pool.tensor == 1
    assert plan.groups[0].shape.pool.tensor == 4
    assert 0 < token < min(one.tpot_s for one in found.plans)
    assert 0 < first < 0.5
