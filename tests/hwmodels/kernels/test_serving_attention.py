"""Attention that only serving runs: latent caches, mixed steps, states of a fixed size."""

import numpy as np
import pytest

from core.errors import UnknownNameError
from hwmodels.device import devices
from hwmodels.kernels.chip import chip
from hwmodels.kernels.linear_attention import ChunkedScan, ScanCalls, scan_seconds

H100 = devices.get("h100-sxm")


def test_latent_decode_reads_one_vector_a_token_for_all_heads():
    seconds = float(H100.kernels.mla_decode(256, 8192, 16))
    moved = 256 * 8192 * 576 * 2
    assert 0.8 < moved / seconds / H100.memory_bandwidth < 0.9


def test_latent_decode_of_128_heads_reaches_the_published_rate():
    # FlashMLA's README: 660 TFLOP/s on H800 where the matrix units bound it.
    seconds = float(H100.kernels.mla_decode(128, 8192, 128, queries=2))
    flops = 2.0 * 128 * 2 * 128 * 8192 * (576 + 512)
    assert flops / seconds == pytest.approx(660e12, rel=0.1)


def test_an_fp8_latent_cache_is_nearly_half_the_time_where_bytes_bound_it():
    whole, half = (H100.kernels.mla_decode(256, 8192, 16, kv_dtype=kv) for kv in (None, "fp8"))
    assert 0.5 < half / whole < 0.7


def test_prefill_over_expanded_latent_vectors_does_not_read_the_cache():
    shape = (1, 4096, 4096, 128, 128, 192)
    kernels = H100.kernels.using("sglang")
    seconds = [kernels.attention(*shape, v_head_dim=128, latent=True, kv_dtype=kv) for kv in (None, "fp8")]
    assert seconds[0] == seconds[1]


def test_latent_prefill_has_constants_where_a_library_was_timed():
    # aiconfigurator 0.12, context_mla of TensorRT-LLM 1.3.0rc20: 379 and 18,647 us.
    shape = np.array([2048, 16384])
    seconds = H100.kernels.using("trtllm").attention(
        1, shape, shape, 128, 128, 192, v_head_dim=128, latent=True
    )
    assert seconds == pytest.approx([379e-6, 18647e-6], rel=0.1)


def test_an_8_bit_cache_is_slower_where_the_device_has_no_fp8():
    shape = (32, 4096, 32, 8, 128)
    old, new = devices.get("a100-sxm-80gb").kernels, H100.kernels
    assert old.attention_decode(*shape, kv_dtype="fp8") > 2 * old.attention_decode(*shape)
    assert new.attention_decode(*shape, kv_dtype="fp8") < new.attention_decode(*shape)


def test_mixed_steps_are_a_sum_where_engines_call_two_kernels():
    kernels = H100.kernels
    mixed = kernels.mixed_attention(512, 1024, [0, 32], 2048, 32, 8, 128)
    chunk = kernels.attention(1, 512, 1024, 32, 8, 128, appends=True)
    assert mixed[0] == chunk
    assert mixed[1] == chunk + kernels.attention_decode(32, 2048, 32, 8, 128)


def test_decodes_in_a_prefill_kernel_cost_more_than_in_their_own():
    kernels = devices.get("rtx-pro-6000").kernels
    decodes = np.array([1.0, 8.0, 32.0, 128.0])
    mixed = kernels.mixed_attention(512, 512, decodes, 2048, 32, 8, 128)
    alone = kernels.attention(1, 512, 512, 32, 8, 128, appends=True)
    ratio = mixed / (alone + kernels.attention_decode(decodes, 2048, 32, 8, 128))
    assert np.all(np.diff(mixed) > 0)
    assert np.all(mixed > alone)
    assert 1.3 < ratio[-1] < 3.0


def test_a_mixed_step_measured_on_rtx_pro_6000():
    # LLMServingSim's profile of Llama 3.1 8B: 128 decodes of 1,024 tokens cost 405 us alone, 672 us mixed.
    kernels = devices.get("rtx-pro-6000").kernels
    assert float(kernels.mixed_attention(128, 128, 128, 1024, 32, 8, 128)) == pytest.approx(672e-6, rel=0.2)


def test_a_scan_grows_with_the_sequence_and_attention_with_its_square():
    kernels = H100.kernels
    scan = kernels.linear_attention(1, [65536, 131072], 32, 128, 128, delta=True)
    full = kernels.attention(1, [65536, 131072], [65536, 131072], 32, 8, 128)
    assert scan[1] / scan[0] == pytest.approx(2.0, rel=0.02)
    assert full[1] / full[0] > 3.8
    assert scan[1] < full[1]


def test_the_delta_rule_and_the_backward_pass_cost_more():
    sizes = np.broadcast_arrays(*np.atleast_1d(4.0, 8192.0, 32.0, 32.0, 128.0, 128.0, 64.0))
    figures, form = chip(H100, "bf16"), ChunkedScan()
    plain, delta = (scan_seconds(form, figures, ScanCalls(*sizes, np.array([d])), False) for d in (0.0, 1.0))
    assert 1.05 < delta / plain < 2.5
    # Backward computes the forward pass's states again and moves the gradients of all that it read.
    behind = [scan_seconds(form, figures, ScanCalls(*sizes, np.array([d])), True) for d in (0.0, 1.0)]
    assert 3.0 < behind[0] / plain < 3.5
    assert 2.0 < behind[1] / delta < 2.5
    late = ChunkedScan(backward_slowdown=1.5)
    call = ScanCalls(*sizes, np.array([0.0]))
    assert scan_seconds(late, figures, call, False) == plain
    assert scan_seconds(late, figures, call, True) / behind[0] == pytest.approx(1.5, rel=0.02)
    kernels = H100.kernels
    with pytest.raises(UnknownNameError, match="forward"):
        kernels.linear_attention(1, 64, 1, 64, 64, direction="sideways")  # type: ignore[arg-type]


def test_a_state_step_does_not_depend_on_the_length_and_moves_each_state_twice():
    seconds = float(H100.kernels.linear_decode(512, 32, 128, 128))
    moved = 2 * 512 * 32 * 128 * 128 * 4
    assert 0.75 < moved / seconds / H100.memory_bandwidth < 0.81


def test_heads_of_a_scan_run_side_by_side_until_they_fill_the_device():
    kernels = H100.kernels.using("vllm")
    heads = np.array([1.0, 64.0, 512.0, 1024.0])
    seconds = kernels.linear_attention(1, 8192, heads, 128, 128, delta=True)
    assert seconds[1] / seconds[0] < 1.5
    assert seconds[3] / seconds[2] == pytest.approx(2.0, rel=0.15)
    with pytest.raises(UnknownNameError, match="kda"):
        kernels.linear_attention(1, 64, 1, 64, 64, rule="kdaa")


def test_a_latent_cache_of_one_sequence_is_split_over_the_device():
    kernels = H100.kernels.using("trtllm")
    one, many = (float(kernels.mla_decode(batch, 131072, 16)) for batch in (1, 64))
    read = 131072 * 576 * 2 / H100.memory_bandwidth
    assert one < 4 * read
    assert many == pytest.approx(64 * read, rel=0.25)


def test_a_formats_own_constants_precede_another_format_of_the_library():
    kernels = devices.get("b200").kernels
    assert "fp8_block" in kernels.calibration.gemm
    assert "fp8_block" not in kernels.calibration.libraries["vllm"].gemm
    shape = (64, 7168, 2048)
    assert kernels.using("vllm").gemm(*shape, "fp8_block") == kernels.gemm(*shape, "fp8_block")
