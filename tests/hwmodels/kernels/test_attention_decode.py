import numpy as np
import pytest

from hwmodels.device import devices

MEASURED = ["a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200"]


@pytest.mark.parametrize("name", MEASURED)
def test_a_large_cache_streams_from_memory(name):
    device = devices.get(name)
    batch, length = 128, 32768
    cache = 2.0 * batch * 8 * length * 128 * 2
    seconds = float(device.kernels.attention_decode(batch, length, 64, 8, 128))
    assert 1.0 < seconds * device.memory_bandwidth / cache < 1.6


@pytest.mark.parametrize("name", MEASURED)
def test_cost_never_falls_with_more_to_read(name):
    kernels = devices.get(name).kernels.uncorrected()
    lengths = 2.0 ** np.arange(7, 18)
    assert np.all(np.diff(kernels.attention_decode(64, lengths, 32, 8, 128)) > 0)


def test_a_cache_of_half_the_bytes_is_faster():
    kernels = devices.get("h100-sxm").kernels
    shape = (128, 16384, 32, 8, 128)
    half = kernels.attention_decode(*shape, kv_dtype="fp8")
    assert 0.45 < half / kernels.attention_decode(*shape) < 0.75


def test_a_cache_that_lies_in_l2_is_no_slower():
    kernels = devices.get("a100-sxm-80gb").kernels
    shape = (8, 1024, 32, 8, 128)
    assert kernels.attention_decode(*shape, cache_in_l2=True) <= kernels.attention_decode(*shape)
