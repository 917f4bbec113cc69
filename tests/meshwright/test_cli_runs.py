"""Runs of weeks from the command line."""

import json

ENDLESS = """
model: llama3.1-8b
cluster: dgx-h100
gpus: 16
workload: {seq_len: 4096, global_batch: 64}
plan: {tensor: 2, data: 8}
run:
  steps: 1000
  faults: {kind: exponential, mtbf: 50}
  elastic: {replan: 1}
  replications: 2
"""


def test_a_run_that_never_finishes_costs_no_number(run, tmp_path):
    path = tmp_path / "endless.yaml"
    path.write_text(ENDLESS, encoding="utf-8")
    report = json.loads(run("simulate", str(path), "--json").out)["run"]
    assert report["unfinished"] == report["replications"]
    assert report["usd"] is None and report["kwh"] is None and report["finish_days"]["mean"] is None
    assert "the run never finishes" in run("simulate", str(path)).out
