"""The scenario that a search on a cluster of groups offers instead."""

from __future__ import annotations

import pytest
import yaml

import meshwright as mw


def test_the_offered_scenario_runs(run, tmp_path):
    asked = run("plan", "train", "mixed-llama3-70b")
    assert asked.code == 2
    offered = yaml.safe_load(asked.err.partition("\n\n")[2])
    layers, stages = offered["placement"]["layers"], offered["placement"]["stages"]
    assert sum(layers[name] * stages[name] for name in stages) == 80
    assert layers["h100"] > layers["a100"]
    answer = mw.simulate_mixed(offered)
    assert answer is not None
    assert answer.to_dict()["step_time_s"] > 0


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
