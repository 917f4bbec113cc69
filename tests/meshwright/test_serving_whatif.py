"""`meshwright whatif` on serving scenarios that are re-planned."""

import json

import pytest
import yaml

SCENARIO = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 2,
    "workload": {
        "kind": "serving",
        "requests": 60,
        "arrivals": {"kind": "poisson", "rate": 4.0},
        "input": 600,
        "output": 60,
        "slo": {"ttft": 0.5, "tpot": 0.03},
    },
    "deployment": {"engine": "vllm-0.19", "replicas": 2, "weights": "fp8"},
}


@pytest.fixture
def path(tmp_path):
    written = tmp_path / "served.yaml"
    written.write_text(yaml.safe_dump(SCENARIO), encoding="utf-8")
    return str(written)


@pytest.fixture
def compared(run, path):
    return lambda *flags: json.loads(run("whatif", path, *flags, "--json").out)


def test_latencies_carry_the_errors_of_measured_servers(run, path, tmp_path):
    """`simulate` and `whatif`, in tables, pages and JSON; other layouts than the fits' have none."""
    report = json.loads(run("simulate", path, "--json").out)
    errors = {name: f"± {100 * error['p90']:.0f}" for name, error in report["expected_errors"].items()}
    assert set(errors) == {"tpot", "ttft"}
    page = tmp_path / "p.html"
    assert "±" in run("simulate", path, "--html", str(page)).out
    assert all(words in page.read_text(encoding="utf-8") for words in errors.values())
    staged = "--set", "deployment.pipeline=2,deployment.replicas=1"
    text = " ".join(run("whatif", path, *staged, "--replications", "1", "--html", str(page)).out.split())
    assert f"Base: expected error TPOT {errors['tpot']}" in text
    assert "expected error not known" in text
    assert errors["ttft"] in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_replanned_variation_runs_the_plan_that_the_search_ranks_first(run, path, compared):
    again, wide = compared("--replan", "--sweep", "gpus=4")["variations"]
    assert again["label"] == "base, re-planned"
    for found, gpus in ((again, 2), (wide, 4)):
        searched = json.loads(run("plan", "serve", path, "--gpus", str(gpus), "--json").out)["deployments"][0]
        assert found["goodput_requests_s"] == pytest.approx(searched["goodput_requests_s"])
        assert found["gpus"] == searched["gpus"] == gpus
        assert found["replanned"]
    assert wide["goodput_requests_s"] > 1.8 * again["goodput_requests_s"]


@pytest.mark.slow
def test_the_search_keeps_the_formats_and_the_variation_its_targets(compared):
    wide, narrow = compared("--replan", "--sweep", "workload.slo.tpot=0.03,0.008")["variations"][1:]
    assert " fp8" in wide["plan"]
    assert 0 < narrow["goodput_requests_s"] < wide["goodput_requests_s"]


@pytest.mark.slow
def test_targets_that_nothing_meets_are_a_problem_of_their_variation(compared):
    found = compared("--replan", "--sweep", "workload.slo.ttft=0.5,0.0001")["variations"]
    assert found[1]["goodput_requests_s"] > 0
    assert "no deployment meets the targets" in found[2]["problem"]


def test_without_replan_the_deployment_is_kept(compared):
    (found,) = compared("--set", "workload.arrivals.rate=8")["variations"]
    assert not found["replanned"]
    assert "plan" not in found


def test_a_degree_cannot_be_set_for_a_deployment_that_is_searched(refused, path):
    told = refused("whatif", path, "--replan", "--set", "deployment.tensor=2")
    assert "deployment.tensor has no effect on a deployment that is searched" in told
