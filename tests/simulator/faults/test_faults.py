"""Fault processes: rates, laws, presets, and the replay of a trace."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.faults import PROCESSES, Exposed, Law, presets, read_faults

JOB = Exposed(256, 8)
STATED = {
    "exponential": {"kind": "exponential", "per_1000_node_days": 6.5},
    "weibull": {"kind": "weibull", "mtbf": "3 h", "of": "job", "shape": 0.7},
    "components": {
        "kind": "components",
        "exposure": {"devices": 1024, "duration": "100 d"},
        "causes": [
            {"name": "card", "component": "gpu", "count": 40, "source": "x"},
            {"name": "hang", "component": "nic", "count": 10, "notice": "hang", "source": "x"},
        ],
    },
    "correlated": {"kind": "correlated", "mtbf": "30 d", "domain": 24, "component": "switch"},
    "silent": {"kind": "silent", "mtbf": "100 d", "of": "node"},
    "replay": {"kind": "replay", "trace": "stepfun-400", "nodes": 400, "duration": "348 d"},
}


def read(reference):
    return read_faults(reference, "faults", Path())


@pytest.mark.parametrize("kind", PROCESSES)
def test_draws_follow_the_rate_and_are_sorted(kind):
    faults, horizon = read(STATED[kind]), 340 * 86400.0
    found = faults.draw(np.random.default_rng(2), JOB, horizon)
    expected = faults.rate(JOB) * horizon
    assert len(found) == pytest.approx(expected, abs=4 * np.sqrt(expected) * (2 if kind == "weibull" else 1))
    assert np.all(np.diff(found.time) >= 0)
    assert found.time.min() >= 0
    assert found.time.max() < horizon
    assert np.all(found.repair_s >= 0)
    assert sum(each.rate for each in faults.kinds(JOB)) == pytest.approx(faults.rate(JOB))
    again = faults.draw(np.random.default_rng(2), JOB, horizon)
    assert repr(found) == repr(again)


def test_a_replay_equals_its_trace():
    faults = read(STATED["replay"])
    trace = faults.processes[0].source
    found = faults.draw(np.random.default_rng(0), Exposed(400, 8), 349 * 86400.0)
    known = np.sort(trace.start[np.isfinite(trace.start)])
    assert np.array_equal(found.time, known)
    assert (trace.starts, trace.left_out, int(trace.paired.sum())) == (584, (14, 14), 570)
    assert trace.per_1000_node_days == pytest.approx(4.20, abs=0.005)
    assert trace.availability == pytest.approx(0.975, abs=0.0005)


def test_joined_intervals_of_a_node_do_not_overlap():
    joined = read(STATED["replay"]).processes[0].source.joined()
    for (node, _, end), (other, start, _) in pairwise(joined):
        assert other > node or start > end


def test_a_domain_takes_its_nodes_together():
    faults = read(STATED["correlated"])
    found = faults.draw(np.random.default_rng(0), JOB, 3000 * 86400.0)
    assert set(found.nodes) == {24, 256 - 10 * 24}


def test_causes_of_llama_3_add_up_to_its_419_interruptions():
    faults = read("llama3-2024")
    job = Exposed(2048, 8)
    assert faults.rate(job) * 54 * 86400 == pytest.approx(419)
    assert 1 / faults.rate(job) / 3600 == pytest.approx(3.09, abs=0.005)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_draws_and_names_its_sources(name):
    preset, faults = presets.get(name), read(name)
    assert preset.source
    assert faults.rate(JOB) > 0
    for process in faults.processes:
        for cause in getattr(process, "causes", ()):
            assert isinstance(cause, str) or cause.source


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"mtbf": 0, "per_1000_node_days": None}, "above 0"),
        ({"per_1000_node_days": -1}, "above 0"),
        ({"mtbf": 10.0}, "a rate is needed"),
        ({"kind": "weibull", "shape": 0}, "above 0"),
        ({"kind": "weibull", "shape": 7e-19}, "above 0.05"),
        ({"kind": ["weibull"]}, "unknown fault process"),
        ({"kind": "exponentail"}, "did you mean 'exponential'"),
        ({"repair": {"lognormal": {"median": 5, "mean": 4}}}, "at least the median"),
        ({"repair": "3 weeks"}, "'20 min'"),
    ],
)
def test_bad_processes_are_refused_with_their_key(changed, told):
    with pytest.raises(InputError) as caught:
        read({**STATED["exponential"], **changed})
    assert told in str(caught.value)
    assert str(caught.value).startswith("faults")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("0,5.0,4.0", "ends before it starts"),
        ("7,1.0,4.0", "node must be 0 to 3"),
        ("x,1.0,4.0", "node must be 0 to 3"),
        ("1,one,4.0", "must be a number of days"),
    ],
)
def test_bad_rows_of_a_trace_are_refused_with_their_line(row, told, tmp_path):
    (tmp_path / "t.csv").write_text(f"node,start_day,end_day\n0,1.0,2.0\n{row}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_faults({"kind": "replay", "trace": "t.csv", "nodes": 4, "duration": "9 d"}, "f", tmp_path)
    assert told in str(caught.value)
    assert "line 3" in str(caught.value)


def test_rows_without_an_end_are_starts_and_not_availability(tmp_path):
    text = "node,start_day,end_day\n2,3.0,4.0\n0,1.0,\n1,,2.0\n2,3.5,5.0\n"
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    stated = {"kind": "replay", "trace": "t.csv", "nodes": 4, "duration": "10 d"}
    trace = read_faults(stated, "f", tmp_path).processes[0].source
    assert trace.starts == 3
    assert trace.availability == pytest.approx(1 - 2 / 40)


@pytest.mark.parametrize(
    "law",
    [
        {"exponential": 50},
        {"uniform": [10, 90]},
        {"lognormal": {"median": 30, "mean": 50}},
        {"weibull": {"mean": 50, "shape": 0.8}},
        "50 s",
    ],
)
def test_laws_have_the_mean_that_they_state(law):
    read_law = Law.model_validate(law)
    draws = read_law.draw(np.random.default_rng(0), 200_000)
    assert read_law.mean == 50
    assert draws.mean() == pytest.approx(50, rel=0.02)
