"""Questions about a cluster of groups that `plan` answers, and those that no search ranges over."""

from __future__ import annotations

import json

import pytest

import meshwright as mw


@pytest.mark.slow
def test_the_ranked_plan_beats_the_written_one_and_runs_when_saved(run, tmp_path):
    saved = tmp_path / "first.yaml"
    asked = run("plan", "train", "mixed-llama3-70b", "--top", "2", "--save", str(saved), "--json")
    plans = json.loads(asked.out)["plans"]
    written = mw.simulate("mixed-llama3-70b").to_dict()
    assert plans[0]["step_time_s"] < written["step_time_s"]
    assert mw.simulate(str(saved)).to_dict()["step_time_s"] == plans[0]["step_time_s"]
    assert sum(group["devices"] for group in plans[0]["groups"]) <= 64


@pytest.mark.slow
def test_a_fixed_field_holds_in_every_plan(run):
    asked = run("plan", "train", "mixed-llama3-70b", "--fix", "tensor=4", "--fix", "recompute=full", "--json")
    plans = json.loads(asked.out)["plans"]
    assert {(plan["plan"]["tensor"], plan["plan"]["recompute"]) for plan in plans} == {(4, "full")}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--fix", "tensor=3"), "no split of stages or replicas over the groups with tensor=3"),
        (("--objective", "cost"), "ranked by time"),
        (("--refine", "3"), "a ranking of groups does not read it"),
        (("--csv", "plans.csv"), "have no such file"),
    ],
)
def test_what_a_ranking_of_groups_does_not_read_is_refused(run, flags, message):
    asked = run("plan", "train", "mixed-llama3-70b", *flags)
    assert asked.code == 2
    assert message in asked.err


@pytest.mark.slow
def test_rankings_and_steps_of_groups_have_pages(run, tmp_path):
    for question in (("plan", "train", "mixed-llama3-70b"), ("simulate", "groups-gpt-7.5b")):
        page = tmp_path / f"{question[0]}.html"
        asked = run(*question, "--html", str(page))
        assert asked.code == 0 and "page written" in asked.err
        assert "waiting" in page.read_text() or "Seconds by part" in page.read_text()


def test_sizes_name_what_takes_groups(run):
    asked = run("plan", "size", "mixed-llama3-70b", "--tokens", "1T", "--gpus", "8..64")
    assert asked.code == 2
    assert "`meshwright plan` ranks plans of it" in asked.err


@pytest.mark.parametrize("workload", ["", "[1]"])
def test_a_broken_workload_of_a_cluster_of_groups_is_refused(run, tmp_path, workload):
    groups = "groups: [{name: h100, cluster: dgx-h100, nodes: 1}], join: {fabric: infiniband}"
    path = tmp_path / "mixed.yaml"
    path.write_text(
        f"model: gpt2\ncluster: {{name: mixed, {groups}}}\nworkload: {workload}\n", encoding="utf-8"
    )
    refused = run("plan", str(path))
    assert refused.code == 2
    assert "mixed.yaml" in refused.err
