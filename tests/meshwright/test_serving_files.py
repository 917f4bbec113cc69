"""Pages, traces and comparisons of serving runs; what the catalogues show of policies."""

import gzip
import json
import re

import pytest
import yaml

from meshwright.questions.scenarios import shipped_scenarios
from meshwright.variations.question import WhatIfQuestion
from simulator.serving.scenario import make_serving
from tests.meshwright.test_cli_serving import SMALL


@pytest.fixture
def path(tmp_path):
    variations = {
        "load": {"sweep": {"workload.arrivals.rate": [2.0, 8.0]}},
        "chunks": {"set": {"deployment.options.token_budget": 256}},
        "too big": {"set": {"model": "llama3.1-405b"}},
    }
    file = tmp_path / "serving.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "variations": variations}, sort_keys=False), encoding="utf-8")
    return file


@pytest.mark.slow
def test_a_comparison_holds_every_variation_against_the_base(run, path, tmp_path):
    page = tmp_path / "page.html"
    ran = run("whatif", str(path), "--json", "--html", str(page))
    report = json.loads(ran.out)
    assert [one["name"] for one in report["variations"]] == ["load", "load", "chunks", "too big"]
    assert report["variations"][0]["changed"] == {"workload.arrivals.rate": 2.0}
    assert report["variations"][1]["output_rate_change"] > 0 > report["variations"][0]["output_rate_change"]
    assert "does not fit" in report["variations"][3]["problem"]
    assert "workload.arrivals.rate" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("workload.arrivals.rat", "workload.arrivals.rate"), ("deployment.tensr", "deployment.tensor")],
)
def test_an_unknown_key_of_a_variation_is_named(refused, path, key, nearest):
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["variations"] = {"one": {"set": {key: 2}}}
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    assert nearest in refused("whatif", str(path))


def test_a_trace_has_one_process_a_replica_and_no_overlapping_steps(run, path, tmp_path):
    trace = tmp_path / "trace.json.gz"
    run("simulate", str(path), "--trace", str(trace))
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    for replica in (0, 1):
        steps = [one for one in events if one["ph"] == "X" and one["pid"] == replica]
        ends = [one["ts"] + one["dur"] for one in steps]
        assert all(end <= after["ts"] + 1e-3 for end, after in zip(ends, steps[1:], strict=False))
    made = sum(one["args"]["decodes"] * one["args"]["steps"] for one in events if one["ph"] == "X")
    report = json.loads(run("simulate", str(path), "--json").out)
    assert made == pytest.approx(report["output_rate"] * report["window_s"], rel=0.2)


def test_a_page_draws_every_section(run, path, tmp_path):
    page = tmp_path / "page.html"
    run("simulate", str(path), "--html", str(page))
    text = page.read_text(encoding="utf-8")
    assert re.findall("<h2>([^<]*)</h2>", text) == [
        "Latencies",
        "The run",
        "Latency of all requests",
        "Latency over time",
        "Occupancy and KV use over time",
        "Where the time of steps goes",
        "Some requests",
    ]


@pytest.mark.parametrize("kind", ["engines", "schedulers", "routers", "scalers", "traces"])
def test_policies_are_shown_by_name(run, kind):
    for entry in json.loads(run("show", kind, "--json").out)[kind]:
        assert run("show", kind, entry["name"]).code == 0


SERVING = {
    name: path
    for name, path in shipped_scenarios().items()
    if "kind: serving" in path.read_text(encoding="utf-8")
}


@pytest.mark.parametrize("name", SERVING)
def test_shipped_variations_can_be_asked(name):
    if "\nvariations:" not in SERVING[name].read_text(encoding="utf-8"):
        return
    for run in WhatIfQuestion.read(SERVING[name]).runs():
        make_serving(run.data, run.where, run.folder)
