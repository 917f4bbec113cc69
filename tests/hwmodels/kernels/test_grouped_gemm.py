import numpy as np
import pytest

from hwmodels.device import devices
from hwmodels.kernels import grouped_gemm
from hwmodels.kernels.chip import chip


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


def weights_seconds(device, hits, hidden, width, element):
    return hits * 3 * hidden * width * element / device.memory_bandwidth


@pytest.mark.parametrize(("name", "dtype", "element"), [("h100-sxm", "bf16", 2), ("b200", "nvfp4", 0.5625)])
def test_a_decode_step_reads_the_experts_that_random_routing_hits(name, dtype, element):
    device, tokens = devices.get(name), np.array([1.0, 8.0, 32.0, 256.0])
    seconds = device.kernels.expert_layer(tokens, 7168, 2048, 8, 256, dtype=dtype)
    hits = 256 * (1 - (1 - 8 / 256) ** tokens)
    ratio = seconds / weights_seconds(device, hits, 7168, 2048, element)
    assert np.all((ratio > 1.0) & (ratio < 1.3))


def test_random_routing_hits_all_experts_of_a_token_and_in_the_end_all():
    hits = grouped_gemm.uniform_hits(np.array([1.0, 1e6]), np.array(8.0), np.array(128.0))
    assert hits == pytest.approx([8.0, 128.0])
    assert grouped_gemm.uniform_hits(np.array(3.0), np.array(4.0), np.array(4.0)) == pytest.approx(4.0)


def test_experts_that_differ_in_popularity_are_hit_less_until_all_are():
    tokens, experts = np.array([1.0, 16.0, 64.0, 1e9]), np.array(128.0)
    popular = grouped_gemm.popular_hits(tokens, np.array(8.0), experts)
    uniform = grouped_gemm.uniform_hits(tokens, np.array(8.0), experts)
    assert popular[0] == 8.0 and popular[-1] == pytest.approx(128.0)
    assert np.all(popular[1:3] < uniform[1:3])
    # A gamma of shape 1: 1 - 1 / (1 + 1) of the experts at one copy each.
    assert popular[1] == pytest.approx(128 / 2)
    assert grouped_gemm.popular_hits(np.array(1.0), np.array(2.0), np.array(2.0)) == pytest.approx(2.0)


def test_chance_loads_the_busiest_device_less_and_less_as_tokens_grow():
    kernels = devices.get("h200-sxm").kernels
    tokens = np.array([8.0, 64.0, 512.0, 8192.0])
    one = kernels.expert_layer(tokens, 4096, 1536, 8, 128) / 8
    split = kernels.expert_layer(tokens, 4096, 1536, 8, 128, expert_parallel=8)
    assert split[0] / one[0] > split[1] / one[1] + 0.2
    assert np.all((split / one > 1.0) & (split / one < 2.0))


def test_skew_is_a_degree():
    kernels = devices.get("b200").kernels
    seconds = kernels.expert_layer(64, 4096, 1536, 8, 128, skewed=[0.0, 0.5, 1.0])
    assert seconds[0] > seconds[1] > seconds[2]
    many = kernels.expert_layer(16384, 4096, 1536, 8, 128, expert_parallel=8, skewed=[0.0, 0.5, 1.0])
    assert many[0] < many[1] < many[2]


def test_a_served_layer_is_its_products_and_little_more_where_they_are_large():
    kernels = devices.get("h100-sxm").kernels.uncorrected()
    copies = 8192 * 8
    products = kernels.grouped_gemm(copies, 2 * 768, 2048, 128) + kernels.grouped_gemm(copies, 2048, 768, 128)
    layer = kernels.expert_layer(8192, 2048, 768, 8, 128)
    assert 0.6 * products < layer < 2 * products


def test_skewed_routing_loads_the_busiest_device():
    kernels = devices.get("h100-sxm").kernels.uncorrected()
    even, skewed = (
        kernels.expert_layer(16384, 4096, 1536, 8, 128, expert_parallel=8, skewed=s) for s in (False, True)
    )
    assert 1.3 < skewed / even < 4.0


ENGINE_LAYERS = [
    (name, library, dtype)
    for name in ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "gb200", "b300", "gb300")
    for library, kernels in devices.get(name).kernels.calibration.libraries.items()
    for dtype, entry in kernels.grouped_gemm.items()
    if entry.form.engine_kernels
]


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm"])
def test_tensorrt_llms_servers_run_the_kernel_of_its_hopper_table(name):
    entry = devices.get(name).kernels.calibration.libraries["trtllm"].grouped_gemm["fp8_block"]
    assert entry.form.engine_kernels


@pytest.mark.parametrize(("name", "library", "dtype"), ENGINE_LAYERS)
def test_no_layer_of_an_engine_beats_memory_or_matrix_units(name, library, dtype):
    kernels = devices.get(name).kernels.using(library)
    tokens = np.array([1.0, 8.0, 64.0, 512.0, 4096.0, 32768.0])
    for hidden, width, top_k, experts in ((4096, 1536, 8, 128), (7168, 2048, 8, 256), (2048, 768, 8, 128)):
        seconds = kernels.expert_layer(tokens, hidden, width, top_k, experts, dtype=dtype)
        hits = grouped_gemm.uniform_hits(tokens, np.array(top_k), np.array(experts))
        figures = chip(devices.get(name), dtype)
        read = weights_seconds(devices.get(name), hits, hidden, width, figures.element_bytes)
        computed = 6.0 * tokens * top_k * hidden * width / figures.peak
        assert np.all(seconds > np.maximum(read, computed))
        # TensorRT-LLM's table of nvfp4 on GB300: 17 times the peak's time for 128 experts of 2,048 x 768.
        assert np.all(seconds < 20.0 * np.hypot(read, computed))


def test_an_engines_own_layer_starts_as_its_table_says_and_others_with_the_engine():
    kernels = devices.get("h100-sxm").kernels.calibration
    form = kernels.libraries["vllm"].grouped_gemm["bf16"].form
    hidden, other = form.model_copy(update={"hidden_start": True}), kernels.grouped_gemm["bf16"].form
    assert form.served().routing_overhead_s == form.routing_overhead_s > 0.0 < form.served().overhead_s
    for served in (hidden.served(), other.served()):
        assert served.routing_overhead_s == served.overhead_s == 0.0
    assert hidden.served().memory_efficiency == form.served().memory_efficiency == form.memory_efficiency


def test_the_start_of_experts_in_another_kernel_is_that_of_the_engines_table():
    kernels = devices.get("h200-sxm").kernels
    table = kernels.calibration.libraries["vllm"].grouped_gemm["fp8_block"].form
    assert kernels.using("vllm").expert_start("fp8_block") == table.routing_overhead_s
    assert kernels.expert_start("fp8_block") == 0.0


def layers(tokens, experts, width=1536):
    sizes = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in (tokens, 4096, width, experts)))
    tokens, hidden, width, experts = sizes
    copies = 8 * tokens
    return grouped_gemm.Experts(copies, tokens, hidden, width, experts, np.zeros_like(copies), copies * 0 + 1)


def test_weights_that_fit_into_l2_are_faster_in_a_benchmarks_loop_alone():
    device = devices.get("l40s")
    form = device.kernels.using("trtllm").calibration.libraries["trtllm"].grouped_gemm["bf16"].form
    outside = form.model_copy(update={"l2_gain": 0.0})
    few, many = layers(4.0, 2.0, 512), layers(64.0, 128.0)
    figures = chip(device, "bf16")
    for layer, fits in ((few, True), (many, False)):
        seconds = [grouped_gemm.expert_layer_seconds(one, figures, layer) for one in (form, outside)]
        assert (seconds[0] < 0.8 * seconds[1]) == fits
    assert form.served().l2_gain == 0.0


def test_default_tiles_change_where_tokens_outnumber_experts():
    """SGLang's 16-bit experts on L40S: 128 of them take half as long again with 256 tokens as with 128."""
    device = devices.get("l40s")
    form = device.kernels.using("sglang").calibration.libraries["sglang"].grouped_gemm["bf16"].form
    at = layers(np.array([127.0, 128.0, 129.0]), 128.0)
    seconds = grouped_gemm.expert_layer_seconds(form, chip(device, "bf16"), at)
    assert seconds[1] / seconds[0] < 1.02
    assert seconds[2] / seconds[1] > 1.05
    tuned = form.model_copy(update={"untuned": False})
    seconds = grouped_gemm.expert_layer_seconds(tuned, chip(device, "bf16"), at)
    assert seconds[2] / seconds[1] < 1.02
