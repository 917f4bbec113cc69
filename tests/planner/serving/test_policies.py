"""Policies tried around a found deployment, and those that a scenario keeps."""

import pytest

import meshwright as mw
from core.errors import InputError, UnknownNameError
from meshwright.questions.policies import tried_policies
from planner.serving.policies import MOST_COMBINATIONS, PolicyRun, PolicySearch, combinations, with_policies
from planner.serving.refine import RefinedServing

SMALL = {
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "gpus": 1,
    "workload": {
        "kind": "serving",
        "requests": 60,
        "arrivals": {"kind": "poisson", "rate": 5},
        "input": 400,
        "output": 20,
        "slo": {"ttft": 0.2},
    },
    "deployment": {"engine": "vllm-0.19", "adapters": {"count": 20, "rank": 16}},
}
LIMIT = {"tensor": 1, "pipeline": 1}


def test_words_become_values():
    found = tried_policies(["migrate=off,llumnix", "tiers=off,host:200+nvme:2000", "adapters.memory=4"])
    assert found["migrate"] == (None, {"kind": "llumnix"})
    assert found["tiers"][0] is None
    assert [one["place"] for one in found["tiers"][1]] == ["host", "nvme"]
    assert found["adapters.memory"] == (4.0,)


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("migrat=off", UnknownNameError, "migrate"),
        ("migrate=lumnix", UnknownNameError, "llumnix"),
        ("tiers=host", InputError, "PLACE:GIGABYTES"),
        ("adapters.memory=much", InputError, "positive number"),
        ("migrate", InputError, "KEY=VALUE"),
        ("encoder=0", InputError, "from 1"),
        ("encoder=1.5", InputError, "from 1"),
    ],
)
def test_wrong_words_are_refused(text, error, says):
    with pytest.raises(error, match=says):
        tried_policies([text])


def test_too_many_combinations_are_refused():
    with pytest.raises(InputError, match=f"{MOST_COMBINATIONS}"):
        combinations({"adapters.memory": range(MOST_COMBINATIONS + 1)})


def test_a_key_inside_another_needs_it():
    with pytest.raises(InputError, match=r"states no deployment\.adapters"):
        with_policies({"deployment": {}}, {"adapters.memory": 4.0})


def test_the_plainest_of_equal_combinations_is_chosen():
    runs = [
        PolicyRun({"migrate": {"kind": "llumnix"}}, RefinedServing(10.1, 0.2)),
        PolicyRun({"migrate": None}, RefinedServing(10.0, 0.2)),
    ]
    assert PolicySearch(runs).best is runs[1]
    apart = [runs[0], PolicyRun({"migrate": None}, RefinedServing(9.0, 0.2))]
    assert PolicySearch(apart).best is apart[0]


def test_a_search_keeps_adapters_and_tries_their_memory():
    found = mw.deploy(SMALL, limit=LIMIT, top=1, tries={"adapters.memory": (0.05, 2.0)})
    assert found.policies is not None
    assert {one.policies["adapters.memory"] for one in found.policies.runs} == {0.05, 2.0}
    assert all(one.run.goodput > 0 for one in found.policies.runs)
    made = found.scenario()["deployment"]
    assert made["adapters"]["count"] == 20
    assert made["adapters"]["memory"] == found.policies.best.policies["adapters.memory"]


def test_policies_need_a_target():
    data = {**SMALL, "workload": {name: value for name, value in SMALL["workload"].items() if name != "slo"}}
    with pytest.raises(InputError, match="target"):
        mw.deploy(data, limit=LIMIT, objective="latency", tries={"adapters.memory": (1.0,)})
