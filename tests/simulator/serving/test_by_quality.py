"""Routing by known quality between pools of different models."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.routers.by_quality import ByQuality
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()
QUALITY = {"large": [0.9, 0.8], "small": [0.85, 0.4]}


def data(pools=None, workload=None, **options):
    return {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 400,
            "arrivals": {"kind": "poisson", "rate": 20},
            "input": 300,
            "output": 50,
            **(workload or {}),
        },
        "deployment": {
            "pools": pools or [{"name": "large"}, {"name": "small", "model": "llama3.2-1b"}],
            "router": "by-quality",
            "router_options": {"quality": QUALITY, "classes": [3, 1], **options},
        },
    }


def run(**keys):
    return serve(make_serving(data(**keys), "test", Path(), TABLES))


@pytest.mark.slow
def test_a_price_sends_what_the_small_model_does_as_well():
    free, priced, dear = run(), run(price={"large": 0.1}), run(price={"large": 0.5})
    assert free.to_dict()["quality"]["shares"] == {"large": 1.0, "small": 0.0}
    assert free.to_dict()["quality"]["mean"] == pytest.approx((3 * 0.9 + 0.8) / 4, abs=0.002)
    found = priced.to_dict()["quality"]
    assert found["shares"]["small"] == pytest.approx(0.75, abs=0.01)
    assert found["mean"] == pytest.approx((3 * 0.85 + 0.8) / 4, abs=0.002)
    assert dear.to_dict()["quality"]["shares"]["small"] == 1.0


def test_classes_come_in_proportion_and_stay_with_a_request():
    router = ByQuality(quality=QUALITY, classes=[3, 1])
    classes = router.class_of(np.arange(1000))
    assert np.bincount(classes).tolist() == pytest.approx([750, 250], abs=3)
    assert [int(router.class_of(np.array(one))) for one in range(50)] == classes[:50].tolist()


def test_a_pool_serves_its_own_model():
    setting = make_serving(data(), "test", Path(), TABLES)
    large, small = setting.pools
    assert (large.model.name, small.model.name) == ("llama3.1-8b", "llama3.2-1b")
    assert small.costs.steps.step((), 8, 4000) < 0.6 * large.costs.steps.step((), 8, 4000)


def test_examples_lengthen_the_prompts_of_their_pool_only():
    columns = run(price={"large": 0.1}, examples={"small": 200}).records.columns()
    assert set(columns["prompt"][columns["replica"] == 0]) == {300}
    assert set(columns["prompt"][columns["replica"] == 1]) == {500}


def test_a_queue_sends_requests_to_the_other_pool():
    workload = {"arrivals": {"kind": "poisson", "rate": 200}}
    pools = [
        {"name": "large", "options": {"max_sequences": 8}},
        {"name": "small", "model": "llama3.2-1b", "options": {"max_sequences": 8}},
    ]
    alone, shared = (
        run(load=load, workload=workload, pools=pools).to_dict()["quality"] for load in (0.0, 0.02)
    )
    assert alone["shares"]["small"] == 0.0
    assert 0.2 < shared["shares"]["small"] < 0.8
    assert shared["mean"] < alone["mean"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"quality": {"large": [0.9, 0.8]}}, "'small' has no quality"),
        ({"quality": {**QUALITY, "smal": [0.1, 0.1]}}, "unknown pool 'smal'.*small"),
        ({"quality": {"large": [0.9], "small": [0.5, 0.5]}}, "1 values for 2"),
        ({"examples": {"tiny": 3}}, "'tiny' has no `quality`"),
        (
            {
                "pools": [
                    {"name": "large", "role": "prefill"},
                    {"name": "small", "role": "decode", "model": "llama3.2-1b"},
                ]
            },
            "different models",
        ),
    ],
)
def test_senseless_tables_are_refused(keys, says):
    with pytest.raises(InputError, match=says):
        run(**keys)
