"""Weights that are read in every step."""

from pathlib import Path

import pytest

from core.errors import InfeasibleError, InputError
from hwmodels.cluster import usual_cluster
from simulator.serving.scenario import make_serving


def costs(model: str = "llama3.1-8b", **deployment):
    data = {
        "model": model,
        "cluster": "rtx-4090-8",
        "workload": {
            "kind": "serving",
            "requests": 10,
            "arrivals": {"kind": "burst"},
            "input": 100,
            "output": 20,
        },
        "deployment": {"options": {"max_context": 4096}, **deployment},
    }
    return make_serving(data, "test", Path()).pools[0].costs


def test_resident_layers_change_nothing():
    plain, kept = costs(), costs(stream={"from": "host", "resident": 1.0})
    assert kept.kv_blocks == plain.kv_blocks
    assert kept.steps.step((), 4, 400) == plain.steps.step((), 4, 400)


def test_a_decode_step_lasts_as_long_as_the_link_takes():
    plain, streamed = costs(), costs(stream={"from": "host"})
    link = usual_cluster("rtx-4090").device.kernels.calibration.host_copy
    assert streamed.steps.step((), 1, 100) == pytest.approx(streamed.steps.stretch(1, 100)[0])
    assert streamed.steps.step((), 1, 100) == pytest.approx(plain.weight_bytes / link.bandwidth)
    assert streamed.kv_blocks > plain.kv_blocks


def test_without_prefetch_a_step_takes_the_sum():
    plain, beside, after = costs(), *(costs(stream={"prefetch": one}) for one in (True, False))
    step = plain.steps.step((), 1, 100)
    assert after.steps.step((), 1, 100) == pytest.approx(beside.steps.step((), 1, 100) + step)


def test_a_model_that_fits_nowhere_says_what_streaming_needs():
    with pytest.raises(InfeasibleError, match=r"stream.*from the host.*s a step"):
        costs("llama2-70b")
    assert costs("llama2-70b", stream={"from": "host"}).kv_blocks > 0


def test_bad_input():
    with pytest.raises(InputError, match="window"):
        costs(stream={"window": 0})


def test_processors_and_link_end_together():
    link, both = (costs(stream={"from": "host", "cpu_bytes_s": rate}).steps for rate in (0.0, 5e10))
    read_s = link.step((), 1, 100)
    cpu_s = read_s * usual_cluster("rtx-4090").device.kernels.calibration.host_copy.bandwidth / 5e10
    assert both.step((), 1, 100) == pytest.approx(1 / (1 / read_s + 1 / cpu_s))
    assert both.stretch(1, 100)[0] == pytest.approx(both.step((), 1, 100))
    # Processors are slow at large products: prompts gain little.
    prompt = (((2048, 0),), 0, 0)
    assert link.step(*prompt) >= both.step(*prompt) > 0.95 * link.step(*prompt)


def test_processors_without_a_rate_change_nothing():
    plain, idle = costs(stream={}), costs(stream={"cpu_flops": 1e9})
    assert plain.steps.step((), 3, 300) == idle.steps.step((), 3, 300)
