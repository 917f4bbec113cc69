import numpy as np
import pytest

from hwmodels.device import devices


def test_one_expert_with_many_tokens_is_nearly_a_dense_product():
    kernels = devices.get("h100-sxm").kernels.uncorrected()
    grouped = kernels.grouped_gemm(16384, 4096, 4096, 1)
    assert grouped == pytest.approx(kernels.gemm(16384, 4096, 4096), rel=0.5)


def test_few_tokens_an_expert_pay_for_all_weights():
    device = devices.get("h100-sxm")
    weights = 128 * 2048.0 * 4096 * 2
    seconds = float(device.kernels.grouped_gemm(256, 2048, 4096, 128))
    assert 0.95 < seconds * device.memory_bandwidth / weights < 1.8


def test_experts_that_no_token_can_choose_are_not_read():
    kernels = devices.get("h100-sxm").kernels
    assert kernels.grouped_gemm(4, 2048, 4096, 128) < 0.2 * kernels.grouped_gemm(256, 2048, 4096, 128)


def test_spreading_tokens_over_more_experts_never_helps():
    kernels = devices.get("a100-sxm-80gb").kernels
    experts = 2.0 ** np.arange(0, 8)
    assert np.all(np.diff(kernels.grouped_gemm(8192, 2048, 4096, experts)) > -1e-9)


def test_imbalance_is_more_tokens():
    kernels = devices.get("h100-sxm").kernels
    assert kernels.grouped_gemm(8192, 2048, 4096, 8, imbalance=2.0) == kernels.grouped_gemm(
        16384, 2048, 4096, 8
    )


def test_a_layer_is_more_than_its_products_and_less_than_four_times_them():
    kernels = devices.get("h100-sxm").kernels.uncorrected()
    copies = 8192 * 8
    products = kernels.grouped_gemm(copies, 2 * 768, 2048, 128) + kernels.grouped_gemm(copies, 2048, 768, 128)
    layer = kernels.expert_layer(8192, 2048, 768, 8, 128)
    assert products < layer < 4 * products


def test_skewed_routing_loads_the_busiest_device():
    kernels = devices.get("h100-sxm").kernels.uncorrected()
    even, skewed = (
        kernels.expert_layer(16384, 4096, 1536, 8, 128, expert_parallel=8, skewed=s) for s in (False, True)
    )
    assert 1.3 < skewed / even < 4.0
