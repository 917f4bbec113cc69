"""Verdicts above tables: of a step, a server, variations, points of a sweep and measured runs."""

import json

import pytest

import meshwright as mw
from core.errors import InputError
from core.loading import build
from meshwright.reports.sweep_points import points_verdict
from simulator.models import Model

TRAINED = """\
model: llama3.1-8b
cluster: dgx-h100
gpus: 16
workload: {seq_len: 4096, global_batch: 64}
plan: {tensor: 2, sequence_parallel: true, zero: 1}
"""
SERVED = """\
model: llama3.1-8b
cluster: dgx-h100
workload:
  kind: serving
  requests: 400
  arrivals: {kind: poisson, rate: RATE}
  input: 500
  output: 50
  slo: {ttft: 1.0, tpot: 0.05}
deployment: {engine: vllm-0.19, tensor: 1, replicas: 1}
"""


@pytest.fixture
def shown(run, tmp_path):
    """What a command prints of a scenario above its first table, as one line."""

    def shown(text: str, command: str, *options: str) -> str:
        path = tmp_path / "asked.yaml"
        path.write_text(text, encoding="utf-8")
        ran = run(command, str(path), *options)
        assert ran.code in (0, 1), ran.err
        lines = ran.out.split("\n")
        last = next(number for number, line in enumerate(lines) if not line.strip() or line.startswith("  "))
        return " ".join(line.strip() for line in lines[:last])

    return shown


def test_a_step_says_its_band_and_its_parts_first(shown, run, tmp_path):
    told = shown(TRAINED, "simulate")
    step = json.loads(run("simulate", str(tmp_path / "asked.yaml"), "--json").out)
    assert told.startswith("TP2+SP PP1 DP8: ")
    assert f"± {100 * step['step_time_uncertainty']:.0f} %" in told
    assert "Of the step: matrix products" in told


def test_a_step_that_does_not_fit_says_so_first(shown):
    told = shown(TRAINED.replace("8b", "70b"), "simulate")
    assert "The plan does not fit" in told


@pytest.mark.parametrize(
    ("rate", "words"),
    [("4", "Targets met: 100.0 %"), ("300", "Overloaded on 1 GPU: ")],
    ids=["idle", "overloaded"],
)
def test_a_server_says_whether_it_meets_its_targets_first(shown, rate, words):
    assert words in shown(SERVED.replace("RATE", rate), "simulate")


def test_one_variation_of_a_step_is_told_beside_the_base(shown):
    told = shown(TRAINED, "whatif", "--set", "workload.precision=fp8")
    assert told.startswith("precision fp8: ")
    assert "of the base" in told and "$/Mtok" in told


def test_no_difference_is_said(shown):
    told = shown(TRAINED, "whatif", "--set", "plan.overlap_pipeline=false", "--set", "workload.precision=fp8")
    assert "Shortest step: precision fp8" in told
    assert "overlap_pipeline false: within 1 % of the base, too close to tell apart." in told


def test_steps_of_other_batches_are_compared_by_tokens(shown):
    told = shown(TRAINED, "whatif", "--set", "gpus=32", "--set", "workload.global_batch=128")
    assert told.startswith("Most tok/s/GPU: global_batch 128")


def test_variations_that_do_not_fit_are_named(shown):
    told = shown(TRAINED, "whatif", "--set", "model=llama3.1-70b")
    assert told == "model llama3.1-70b: does not fit the memory."


def test_servers_are_told_by_targets_cost_and_speed(shown):
    told = shown(
        SERVED.replace("RATE", "4"),
        "whatif",
        "--set",
        "deployment.tensor=2",
        "--set",
        "workload.arrivals.rate=300",
    )
    assert "Targets missed by rate 300." in told
    assert "Cheapest: the base" in told
    assert "Lowest TPOT: tensor 2" in told


def test_one_overloaded_variation_has_no_latencies(shown):
    told = shown(SERVED.replace("RATE", "4"), "whatif", "--set", "workload.arrivals.rate=300")
    assert told.startswith("rate 300: overloaded, ") and "TTFT" not in told
    assert "sustainable" not in told  # 400 requests at this rate end before the rate can be told


def test_points_name_the_cheapest_and_the_fastest():
    points = [
        {"gpus": 8, "step_time_s": 2.0, "step_time_uncertainty": 0.1, "usd_per_million_tokens": 1.0},
        {"gpus": 16, "step_time_s": 1.1, "step_time_uncertainty": 0.1, "usd_per_million_tokens": 1.1},
        {"gpus": 32, "problem": "no plan fits"},
    ]
    told = points_verdict(points, ["gpus"])
    assert "Cheapest: gpus 8, 1 $/Mtok ± 10 %." in told
    assert "Shortest step: gpus 16, 1.10 s ± 10 %." in told
    assert "1 of 3 points have no answer." in told


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model_type": "llama", "hidden_size": 64}, "is the config.json of a model"),
        ({"model": "x", "cluster": "y", "workload": {}}, "is a scenario"),
        ({"scenario": "x", "grid": {}}, "is a sweep"),
        ({"device": "h100", "nodes": 4}, "is a cluster: --cluster a.yaml"),
        ({"plans": [], "question": {}}, "is an answer of --json"),
    ],
)
def test_a_file_of_another_kind_says_what_it_is(keys, words):
    with pytest.raises(InputError, match=words):
        build(Model, keys, "a.yaml")


def test_a_wrong_key_of_the_right_kind_is_named():
    with pytest.raises(InputError, match="unknown key 'grid'"):
        build(Model, {"grid": 1}, "a.yaml")


def test_what_commands_call_a_key_is_a_key_of_a_variation(shown):
    assert shown(TRAINED, "whatif", "--set", "seq_len=8k").startswith("seq_len 8192: ")
    assert shown(SERVED.replace("RATE", "4"), "whatif", "--set", "rate=300").startswith("rate 300: ")


def test_an_unknown_key_lists_those_beside_it(run, tmp_path):
    path = tmp_path / "asked.yaml"
    path.write_text(TRAINED, encoding="utf-8")
    assert (
        "allowed: " in (err := run("whatif", str(path), "--set", "workload.qzv=1").err) and "seq_len" in err
    )
    assert "a price stands apart" in run("plan", str(path), "--cluster", "dgx-h100@2.5").err


def test_lengths_that_nobody_stated_are_asked_for_by_their_names():
    with pytest.raises(InputError, match="isl, osl: missing; tokens of a prompt and of an answer"):
        mw.deploy(model="llama3.1-8b", cluster="dgx-h100", gpus=1, rate=1.0)


def test_a_re_planned_variation_is_held_to_the_re_planned_base(shown):
    told = shown(
        TRAINED + "variations:\n  NICs: {sweep: {cluster.network.nic_gbps: [800]}, replan: true}\n", "whatif"
    )
    assert "Re-planning the base alone gives" in told


def test_a_load_is_no_deployment_to_choose(shown):
    loads = (
        "variations:\n  busy: {set: {workload.arrivals.rate: 12}}\n  fp8: {set: {deployment.weights: fp8}}\n"
    )
    told = shown(SERVED.replace("RATE", "6") + loads, "whatif", "--replications", "1")
    assert "Cheapest: busy" not in told and "Cheapest: " in told


def test_a_result_stands_for_the_scenario_of_its_first_plan():
    plans = mw.plan(model="llama3.1-8b", cluster="dgx-h100", gpus=8, seq_len=4096, global_batch=64, top=1)
    compared = mw.whatif(plans, {"slow": {"set": {"cluster.network.nic_gbps": 100}}})
    assert compared.outcomes[0].report["step_time_s"] == pytest.approx(plans.plans[0].step_time_s, rel=1e-3)
