"""`meshwright simulate` on serving scenarios: every workload runs, and bad input is told."""

import csv
import json

import pytest
import yaml

SMALL = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 60,
        "arrivals": {"kind": "poisson", "rate": 4.0},
        "input": 300,
        "output": {"kind": "uniform", "low": 10, "high": 60},
    },
    "deployment": {"engine": "vllm-0.19", "replicas": 2},
}


@pytest.fixture
def serving(tmp_path):
    """Write a serving scenario with values by key path changed; None removes a key."""

    def serving(**changes):
        data = json.loads(json.dumps(SMALL))
        for path, value in changes.items():
            *parts, last = path.split("__")
            inner = data
            for part in parts:
                inner = inner[part]
            if value is None:
                del inner[last]
            else:
                inner[last] = value
        path = tmp_path / "serving.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        return str(path)

    return serving


ARRIVALS = [
    {"kind": "gamma", "rate": 5.0, "cv": 2.0},
    {"kind": "uniform", "rate": 5.0},
    {"kind": "piecewise", "period": 10.0, "rates": [1.0, 0.0, 8.0]},
    {"kind": "burst"},
    {"kind": "closed", "concurrency": 4},
    {"kind": "closed", "concurrency": 4, "think": 0.5, "ramp": 1.0},
]
PROGRAMS = [
    {"kind": "conversation", "turns": 3, "think": 1.0},
    {"kind": "samples", "count": 4},
    {"kind": "agent", "rounds": 2, "fork": 3, "tool": 0.5},
]


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=lambda one: one["kind"])
def test_every_arrival_process_ends_all_requests(run, serving, arrivals):
    report = json.loads(run("simulate", serving(workload__arrivals=arrivals), "--json").out)
    assert report["requests"] == 60
    assert report["ttft_s"]["p50"] > 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one["kind"])
def test_programs_share_prefixes(run, serving, program):
    report = json.loads(run("simulate", serving(workload__program=program), "--json").out)
    assert report["requests"] == 60
    assert report["hit_rate"] > 0.1


def test_the_same_scenario_gives_the_same_bytes(run, serving):
    path = serving(deployment__router="power-of-two")
    assert run("simulate", path, "--json").out == run("simulate", path, "--json").out


def test_requests_are_written_one_a_row(run, serving, tmp_path):
    path = tmp_path / "requests.csv"
    run("simulate", serving(), "--requests", str(path))
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [int(row["serial"]) for row in rows] == list(range(60))
    for row in rows:
        times = [float(row[name]) for name in ("arrival_s", "queued_s", "scheduled_s", "first_s", "last_s")]
        assert times == sorted(times)


def test_overload_is_an_answer_with_the_sustainable_rate(run, serving):
    path = serving(workload__arrivals={"kind": "poisson", "rate": 500.0}, workload__requests=3000)
    report = json.loads(run("simulate", path, "--json").out)
    assert 0 < report["sustainable_rate"] < 500
    assert "grows without end" in run("simulate", path).out


def test_the_sustainable_rate_does_not_depend_on_the_overload(run, serving):
    found = []
    for rate in (400.0, 4000.0):
        path = serving(workload__arrivals={"kind": "poisson", "rate": rate}, workload__requests=3000)
        found.append(json.loads(run("simulate", path, "--json").out)["sustainable_rate"])
    assert found[0] == pytest.approx(found[1], rel=0.15)


@pytest.mark.slow
def test_a_reactive_scaler_follows_the_load_and_pays_for_less(run, serving):
    day = {"kind": "piecewise", "period": 300.0, "rates": [2.0, 40.0, 2.0]}
    options = {"target": 8.0, "start": 20.0, "least": 1, "most": 8}
    reports = {}
    for name, changes in {
        "fixed": {"deployment__replicas": 8},
        "reactive": {"deployment__scaler": "reactive", "deployment__scaler_options": options},
    }.items():
        path = serving(
            workload__arrivals=day,
            workload__requests=9000,
            workload__warmup=0.0,
            deployment__router="least-loaded",
            **changes,
        )
        reports[name] = json.loads(run("simulate", path, "--json").out)
    fixed, reactive = reports["fixed"], reports["reactive"]
    assert fixed["requests"] == reactive["requests"] == 9000
    assert reactive["replicas_started"] > 2
    assert reactive["dollars_per_million"] < 0.8 * fixed["dollars_per_million"]
    assert reactive["e2e_s"]["mean"] >= fixed["e2e_s"]["mean"]


BAD = [
    ({"deployment__engine": "vlm-0.19"}, "did you mean 'vllm-0.19'"),
    ({"deployment__router": "round-robbin"}, "did you mean 'round-robin'"),
    ({"deployment__options": {"scheduler": "chunk"}}, "did you mean 'chunked'"),
    ({"deployment__options": {"scheduler_options": {"size": 3}}}, "unknown key 'size'"),
    ({"deployment__options": {"tokens": 3}}, "unknown key 'tokens'"),
    ({"deployment__router_options": {"weight": 3}}, "unknown key 'weight'"),
    ({"deployment__scaler": "reactiv"}, "did you mean 'reactive'"),
    ({"deployment__replicas": 0}, "deployment.replicas"),
    ({"gpus": 1}, "occupy 2 devices, the job has 1"),
    ({"workload__output": None}, "key 'output' is missing"),
    ({"workload__input": 200_000}, "more than the context of 131,072"),
    ({"workload__arrivals": {"kind": "poison", "rate": 1.0}}, "poisson"),
    ({"workload__trace": {"format": "azur", "path": "x.csv"}}, "did you mean 'azure'"),
]


@pytest.mark.parametrize(("changes", "told"), BAD, ids=lambda one: one if isinstance(one, str) else "")
def test_bad_input_is_refused(refused, serving, changes, told):
    assert told in refused("simulate", serving(**changes))


def test_a_model_that_does_not_fit_says_by_how_much(refused, serving):
    message = refused("simulate", serving(model="llama3.1-70b"), code=1)
    assert "does not fit" in message and "GiB" in message
