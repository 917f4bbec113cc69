"""Requests alone against the event engine, and the targets of papers."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from evidence.claims.serving_targets import SPAN, moving_average, smooth_rate, token_times
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steady.alone import alone, share_alone
from simulator.serving.workload import Slo


def run(rate=0.01, prompt=900, output=20, traced=False, **deployment):
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 10,
            "arrivals": {"kind": "uniform", "rate": rate},
            "input": prompt,
            "output": output,
        },
        "deployment": {"engine": "vllm-0.19", "options": {"max_context": 8192}, **deployment},
    }
    return serve(make_serving(data, "test", Path()), traced=traced)


@pytest.mark.parametrize("prompt", [10, 900, 6000])
@pytest.mark.parametrize("pools", [{}, {"pools": [{"role": "prefill"}, {"role": "decode"}]}])
def test_rare_requests_take_the_time_of_requests_alone(prompt, pools):
    found = run(prompt=prompt, **pools)
    columns = found.records.columns()
    ttft, tpot = alone(found.setting, columns)
    simulated = columns["first_s"] - columns["arrival_s"]
    assert simulated == pytest.approx(ttft, rel=0.01)
    if not pools:
        assert (columns["last_s"] - columns["first_s"]) / 19 == pytest.approx(tpot, rel=0.02)


def test_share_of_requests_alone_within_targets():
    ttft, tpot, output = np.array([0.1, 0.3]), np.array([0.01, 0.01]), np.array([11, 11])
    assert share_alone(Slo.model_validate({"ttft": 0.2}), ttft, tpot, output) == 0.5
    assert share_alone(Slo.model_validate({"e2e": 0.25}), ttft, tpot, output) == 0.5
    assert share_alone(Slo.model_validate({"tpot": 0.001}), ttft, tpot, output) == 0.0


def test_moving_average_weighs_gaps_by_their_age():
    gaps = np.array([0.3, 0.1, 0.1, 0.5])
    keep = 1 - 2 / (SPAN + 1)
    weights = keep ** np.arange(4)[::-1]
    assert moving_average(gaps)[-1] == pytest.approx((weights * gaps).sum() / weights.sum())
    assert moving_average(np.full(50, 0.2)) == pytest.approx(0.2)


def test_tokens_of_a_traced_run_have_times():
    found = run(output=20, traced=True)
    assert len(token_times(found)) == 10 * 19
    assert smooth_rate(found, 1.0) == pytest.approx(found.metrics.request_rate)
    assert smooth_rate(found, 1e-4) == 0.0


def test_a_trace_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("simulator.serving.replica.meter.TraceRoom.__init__.__defaults__", (10,))
    with pytest.raises(InputError, match="a trace keeps at most 10 steps"):
        run(output=200, traced=True)
    run(output=200)
