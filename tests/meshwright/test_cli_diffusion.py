"""`plan serve` and `simulate` of diffusion models as a user types them."""

import json

import pytest

PLAN = (
    *("plan", "serve", "--model", "pixart-sigma-xl", "--cluster", "dgx-h100", "--gpus", "4"),
    *("--images", "1024x1024", "--rate", "1", "--latency", "4"),
)


def asked(run, *words):
    return json.loads(run(*words, "--json").out)


def test_a_plan_meets_its_target_and_simulates_as_it_was_searched(run, tmp_path):
    path = tmp_path / "plan.yaml"
    best = asked(run, *PLAN, "--save", str(path))["plans"][0]
    assert best["within_target"] >= 0.9
    assert best["p90_s"] <= 4
    simulated = asked(run, "simulate", str(path))["load"]
    assert simulated["latency_s"]["p90"] == pytest.approx(best["p90_s"], rel=0.05)
    assert simulated["gpus"] == best["gpus"]


def test_a_plan_whose_devices_share_the_weights_is_saved_as_it_was_searched(run, tmp_path):
    path = tmp_path / "plan.yaml"
    model = ("plan", "serve", "--model", "cosmos3-super", "--cluster", "dgx-h100", "--gpus", "4")
    load = ("--images", "1024x1024", "--steps", "20", "--rate", "0.01", "--latency", "30")
    best = asked(run, *model, *load, "--save", str(path))["plans"][0]["layout"]
    assert best["sharded"]
    assert asked(run, "simulate", str(path))["layout"] == best


@pytest.mark.slow
def test_plans_are_ranked_by_devices_and_named(run, tmp_path):
    report = asked(run, *PLAN)
    devices = [plan["gpus"] for plan in report["plans"]]
    assert devices == sorted(devices)
    page = tmp_path / "page.html"
    table = run(*PLAN, "--html", str(page)).out
    text = page.read_text(encoding="utf-8")
    assert text.index("In short") < text.index("Plans") < text.index("What is asked")
    assert "GPUs" in table
    assert "pixart-sigma-xl" in table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*PLAN, "--isl", "100"), "--isl"),
        (PLAN[:-2], "--latency"),
        ((*PLAN[:9], "1024", *PLAN[10:]), "--images"),
        ((*PLAN[:9], "0x1024", *PLAN[10:]), "width"),
        ((*PLAN[:7], "4..8", *PLAN[8:]), "--gpus"),
        (("plan", "serve", "--model", "llama3.1-8b", *PLAN[4:]), "only plans of diffusion models"),
    ],
    ids=["text", "missing", "size", "zero", "range", "language model"],
)
def test_what_cannot_be_is_refused(refused, words, told):
    assert told in refused(*words)


def test_a_scenario_of_another_kind_names_both(refused, tmp_path):
    path = tmp_path / "both.yaml"
    path.write_text("model: sd3.5-large\ncluster: dgx-h100\nworkload: {kind: diffusion}\ndeployment: {}\n")
    assert "'deployment' of serving" in refused("simulate", str(path))


@pytest.mark.slow
def test_a_target_that_no_plan_meets_names_the_nearest(refused):
    told = refused(*PLAN[:-1], "0.01", code=1)
    assert "no plan reaches 90.0 % within 10.0 ms; nearest: " in told
