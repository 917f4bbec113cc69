"""Requests that a decode replica takes over from a prefill replica."""

from pathlib import Path

import numpy as np
import pytest

from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

OUTPUT = 20
POOLS = [{"role": "prefill"}, {"role": "decode"}]


def columns_of(engine="sglang-0.5.9", **deployment):
    """Records of rare requests through two pools."""
    workload = {
        "kind": "serving",
        "requests": 8,
        "arrivals": {"kind": "uniform", "rate": 0.2},
        "input": 1000,
        "output": OUTPUT,
    }
    pools = {"engine": engine, "weights": "bf16", "pools": POOLS, **deployment}
    data = {"model": "llama3.1-8b", "cluster": "dgx-h100", "workload": workload, "deployment": pools}
    found = serve(make_serving(data, "test", Path()))
    return found, found.records.columns()


def test_handoff_delays_the_second_token_alone():
    none, some = (columns_of(options={"handoff_s": seconds})[1] for seconds in (0.0, 0.5))
    assert some["first_s"] == pytest.approx(none["first_s"])
    assert some["last_s"] - none["last_s"] == pytest.approx(np.full(8, 0.5))


@pytest.mark.parametrize("engine", ["sglang-0.5.9", "vllm-0.19", "tensorrt-llm-1.2"])
def test_tokens_of_a_decode_replica_take_its_decode_steps(engine):
    found, columns = columns_of(engine, options={"handoff_s": 0.0})
    steps = found.setting.pools[1].costs.steps
    decodes = sum(steps.step((), 1, 1000 + token) for token in range(1, OUTPUT))
    # The rest is the KV's way: 131 MB over NVLink, most of it beside the prompt.
    assert columns["last_s"] - columns["first_s"] == pytest.approx(np.full(8, decodes), rel=0.02)
