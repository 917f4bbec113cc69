"""Serving answers over seeds: medians, ranges, and differences that the seeds can tell."""

from __future__ import annotations

import pytest
import yaml

import meshwright as mw
from core.errors import InputError
from meshwright.replications import Difference, difference, over_seeds, student_99

SERVED = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 200,
        "arrivals": {"kind": "poisson", "rate": 20},
        "input": {"kind": "lognormal", "median": 500, "sigma": 0.8, "most": 4000},
        "output": {"kind": "uniform", "low": 10, "high": 200},
    },
    "deployment": {"engine": "vllm-0.19", "replicas": 2, "tensor": 1, "router": "freeness"},
}
IDLE = {"kind": "freeness", "migrate": {"kind": "llumnix", "threshold": -1e6}}


def report(values, seed=0):
    return {"seeds": list(range(seed, seed + len(values))), "by_seed": {"TTFT p99": values}}


@pytest.mark.parametrize(
    ("ours", "theirs", "tells"),
    [
        ([1.1, 2.2, 3.3], [1.0, 2.0, 3.0], True),
        ([1.2, 1.9, 3.3], [1.0, 2.0, 3.0], False),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], False),
        ([1.3, 2.2, 4.5], [1.0, 2.0, 3.0], False),
    ],
)
def test_differences_are_paired_by_seed(ours, theirs, tells):
    found = difference(report(ours), report(theirs), "TTFT p99")
    assert isinstance(found, Difference)
    assert found.tells is tells


def test_runs_of_other_seeds_are_not_compared():
    assert difference(report([1.0, 2.0]), report([1.0, 2.0], seed=5), "TTFT p99") is None


def test_interval_of_many_seeds_nears_the_normal_one():
    """Student's t of 99 %: 3.250 with 9 degrees of freedom, 3.169 with 10, 2.626 with 100."""
    assert student_99(9) == pytest.approx(3.250)
    assert student_99(10) == pytest.approx(3.169, abs=0.02)
    assert student_99(100) == pytest.approx(2.626, abs=0.005)


def test_figures_are_medians_over_the_seeds():
    runs = [mw.simulate({**SERVED, "seed": seed}).to_dict() for seed in (0, 1, 2)]
    told = mw.simulate(SERVED, replications=3).to_dict()
    assert told == over_seeds(runs)
    assert told["ttft_s"]["p99"] == sorted(run["ttft_s"]["p99"] for run in runs)[1]
    assert told["seeds"] == [0, 1, 2]
    assert "by_seed" not in mw.simulate(SERVED).to_dict()


def test_a_policy_that_never_acts_is_said_to_make_no_difference(run, tmp_path):
    path = tmp_path / "served.yaml"
    variations = {
        "idle": {"set": {"deployment.router": IDLE}},
        "twice": {"set": {"deployment.replicas": 4}},
        "flood": {"set": {"workload.arrivals.rate": 5000}},
    }
    path.write_text(yaml.safe_dump({**SERVED, "variations": variations}))
    outcome = run("whatif", str(path))
    assert outcome.code == 0, outcome.err
    assert "idle: no difference that the seeds can tell." in outcome.out
    assert "twice: no difference that" not in outcome.out
    assert "flood: overloaded." in outcome.out and "no steady figure" in outcome.out
    assert "Medians of 3 seeds" in outcome.out


@pytest.mark.parametrize("count", [0, -1, 1001, 1.5, True])
def test_wrong_numbers_of_seeds_are_refused(count):
    with pytest.raises(InputError, match="from 1 to 1,000"):
        mw.simulate(SERVED, replications=count)
    with pytest.raises(InputError, match="from 1 to 1,000"):
        mw.whatif(SERVED, variations={"x": {"set": {"seed": 1}}}, replications=count)


@pytest.mark.parametrize("seed", [None, "none", -1, 1.5])
def test_seeds_that_are_none_are_refused(seed):
    with pytest.raises(InputError, match="seed"):
        mw.simulate({**SERVED, "seed": seed})


def test_the_command_line_refuses_no_replications(refused):
    assert "--replications" in refused("whatif", "serve-llama3-70b", "--replications", "0")
    told = refused("whatif", "nic-gpt3-175b", "--replications", "3")
    assert "only comparisons of deployments" in told
