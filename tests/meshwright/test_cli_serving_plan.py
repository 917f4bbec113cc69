"""``meshwright plan serve`` prints deployments that ``simulate`` reads, and refuses wrong targets."""

from __future__ import annotations

import json

import pytest

from meshwright.reports.serving_plans import gap_words


@pytest.mark.slow
def test_the_command_prints_a_deployment_that_simulate_reads(run, tmp_path):
    flags = [
        "--model",
        "llama3.1-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "2",
        "--isl",
        "1000",
        "--osl",
        "200",
    ]
    asked = ["plan", "serve", *flags, "--rate", "4", "--ttft", "p90=0.5", "--tpot", "0.03"]
    report = json.loads(run(*asked, "--json").out)
    best = report["deployments"][0]
    scenario = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 200,
            "arrivals": {"kind": "poisson", "rate": 4},
            "input": {"kind": "fixed", "tokens": 1000},
            "output": {"kind": "fixed", "tokens": 200},
        },
        "deployment": best["deployment"],
    }
    path = tmp_path / "found.yaml"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    simulated = json.loads(run("simulate", str(path), "--json").out)
    assert simulated["gpus"] == best["gpus"]
    assert simulated["tpot_s"]["mean"] == pytest.approx(best["tpot_s"], rel=0.3)


@pytest.mark.parametrize("target", ["fast", "p80=1", "0", "-1", "p99="])
def test_a_target_that_cannot_be_read_is_refused(run, target):
    flags = ["--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "1", "--isl", "10", "--osl", "10"]
    bad = run("plan", "serve", *flags, f"--ttft={target}")
    assert bad.code == 2
    assert "--ttft" in bad.err


@pytest.mark.parametrize(
    ("objective", "gap", "told"),
    [
        ("goodput", 0.09, "Rank 2 carries 9.0 % less than rank 1."),
        ("cost", 1.0, "Rank 2 costs 100.0 % more a token than rank 1."),
        ("goodput", 0.01, "too close to tell apart; --refine 2"),
    ],
)
def test_the_gap_of_the_second_plan_is_put_in_words(objective, gap, told):
    assert told in gap_words(objective, gap)


SMALL = ["--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "2", "--isl", "1000", "--osl", "200"]
SMALL += ["--ttft", "0.5", "--tpot", "0.03", "--limit", "pipeline=1", "--together"]


@pytest.mark.slow
def test_the_first_line_says_what_of_the_rate_is_carried(run):
    short = run("plan", "serve", *SMALL, "--rate", "500")
    assert short.code == 1
    assert short.out.startswith(
        "no deployment meets the targets at 500 requests/s; 2 x TP1 bf16 carries most"
    )
    assert "the rate that each carries" in short.out
    named = json.loads(run("plan", "serve", *SMALL, "--rate", "500", "--objective", "goodput", "--json").out)
    assert "objective_default" not in named
    assert named["deployments"][0]["rate"] < 500


@pytest.mark.slow
def test_the_default_for_a_rate_is_the_cheapest_with_the_most_goodput_beside_it(run):
    told = run("plan", "serve", *SMALL, "--rate", "4")
    assert told.code == 0
    assert "Most goodput on all GPUs: 2 x TP1 bf16" in told.out
    report = json.loads(run("plan", "serve", *SMALL, "--rate", "4", "--json").out)
    assert (report["objective"], report["objective_default"]) == ("cost", True)
    assert report["deployments"][0]["gpus"] == 1
    assert report["most_goodput"]["gpus"] == 2
