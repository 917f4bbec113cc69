import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import UnknownNameError
from hwmodels.device import devices

LENGTHS = np.array([512, 1024, 2048, 4096, 8192, 16384])
# TFLOP/s on H100 SXM5, 16k tokens, heads x head_dim = 2048: Shah et al. 2024, FlashAttention-3, Fig. 5 and 6.
PUBLISHED = [
    ("cudnn", "forward", True, 128, (315, 410, 484, 518, 529, 539)),
    ("cudnn", "forward", False, 64, (335, 373, 395, 408, 412, 413)),
    ("cudnn", "backward", False, 128, (305, 408, 465, 499, 518, 516)),
    ("flash-attention-3", "forward", True, 128, (292, 423, 521, 579, 602, 616)),
    ("flash-attention-3", "forward", False, 256, (482, 639, 707, 736, 746, 756)),
    ("flash-attention-2", "forward", True, 64, (180, 229, 262, 284, 295, 299)),
    ("flash-attention-2", "backward", False, 64, (198, 238, 264, 279, 287, 291)),
]


def tflops(kernels, lengths, head_dim, causal, direction, heads=None, tokens=16384, share=1.0):
    heads = heads or 2048 // head_dim
    batch = tokens // lengths
    seconds = kernels.attention(
        batch, lengths, lengths, heads, heads, head_dim, causal=causal, direction=direction, share=share
    )
    products = 2.5 if direction == "backward" else 1.0
    flops = products * 4.0 * batch * heads * lengths**2.0 * head_dim / (2.0 if causal else 1.0)
    return flops / seconds / 1e12


@pytest.mark.parametrize(("library", "direction", "causal", "head_dim", "published"), PUBLISHED)
def test_published_training_attention(library, direction, causal, head_dim, published):
    kernels = devices.get("h100-sxm").kernels.using(library)
    predicted = tflops(kernels, LENGTHS, head_dim, causal, direction)
    error = np.abs(predicted / np.array(published) - 1.0)
    assert np.median(error) < 0.06
    assert error.max() < 0.25


# AITER's table (ROCm/aiter, op_tests/cpp/mha/README.md), TFLOP/s:
# 4 sequences, 32 query and 8 key-value heads of 128. Frameworks accumulate in 32 bits on MI300X alone.
AITER = [
    ("mi300x", "forward", False, 4096, 577.2),
    ("mi300x", "forward", True, 8192, 547.1),
    ("mi300x", "backward", False, 4096, 457.4),
    ("mi300x", "backward", True, 8192, 422.8),
    ("mi355x", "forward", False, 4096, 1343.0),
    ("mi355x", "forward", True, 8192, 1318.9),
    ("mi355x", "backward", False, 4096, 1131.1),
    ("mi355x", "backward", True, 8192, 1069.9),
]


@pytest.mark.parametrize(("name", "direction", "causal", "length", "published"), AITER)
def test_published_attention_of_amd(name, direction, causal, length, published):
    kernels = devices.get(name).kernels.sustained()
    seconds = float(kernels.attention(4, length, length, 32, 8, 128, causal, direction=direction))
    flops = (
        4 * 4 * 32 * length**2 * 128 * (0.5 if causal else 1.0) * (2.5 if direction == "backward" else 1.0)
    )
    assert flops / seconds / 1e12 == pytest.approx(published, rel=0.12)


def test_latent_attention_has_no_assembly_backward_on_cdna4():
    kernels = devices.get("mi355x").kernels

    def rate(value_head):
        seconds = kernels.attention(
            4, 4096, 4096, 32, 32, value_head, direction="backward", v_head_dim=2 * 160 - value_head
        )
        return 320 / float(seconds)

    heads_of_128 = 256 / float(kernels.attention(4, 4096, 4096, 32, 32, 128, direction="backward"))
    assert rate(192) < 0.4 * heads_of_128


# AMD-AGI/Primus-Turbo, benchmark/results_optimized/attention_bf16_optimized.csv: 4,096 positions, causal.
@pytest.mark.parametrize(
    ("sequences", "heads", "published"), [(1, 128, 101.7), (4, 128, 103.0), (4, 64, 101.2)]
)
def test_published_backward_pass_of_latent_heads(sequences, heads, published):
    kernels = devices.get("mi300x").kernels.sustained()
    seconds = float(
        kernels.attention(sequences, 4096, 4096, heads, heads, 192, direction="backward", v_head_dim=128)
    )
    flops = 2.5 * sequences * heads * 4096**2 * (192 + 128)
    assert flops / seconds / 1e12 == pytest.approx(published, rel=0.1)


def test_a100_reaches_the_shares_of_its_peak_that_the_paper_gives():
    # Dao 2023, FlashAttention-2: up to 73 % forward and 63 % backward on A100. A kernel at half of the speed
    # keeps its clocks.
    kernels = devices.get("a100-sxm-80gb").kernels
    for direction, published in (("forward", 0.73 * 312), ("backward", 0.63 * 312)):
        slower = tflops(kernels, np.array([16384]), 128, False, direction, share=0.5)[0]
        assert 2 * slower == pytest.approx(published, rel=0.05)


# liangan1/GPU_travel, performance/flash-attn/README.md: 32 heads of 128, at 1,200 of 1,410 MHz.
@pytest.mark.parametrize(
    ("sequences", "length", "causal", "published"),
    [(1, 4096, False, 185), (1, 4096, True, 156), (16, 1024, False, 178), (16, 1024, True, 144)],
)
def test_flash_attention_2_on_an_a100_at_its_power_limit(sequences, length, causal, published):
    kernels = devices.get("a100-sxm-80gb").kernels.sustained()
    reached = tflops(kernels, np.array([length]), 128, causal, "forward", 32, sequences * length)[0]
    assert reached == pytest.approx(published, rel=0.07)


def test_a_slower_kernel_takes_no_less_than_the_fastest_at_settled_clocks():
    kernels = devices.get("a100-sxm-80gb").kernels.sustained()
    fastest, near, half = (kernels.attention(4, 8192, 8192, 32, 32, 128, share=s) for s in (1.0, 0.9, 0.5))
    at_full_clocks = half * 0.5
    assert at_full_clocks < fastest == pytest.approx(near, rel=1e-3)
    assert half > near


def test_a_causal_mask_halves_long_attention():
    kernels = devices.get("h100-sxm").kernels
    causal, full = (kernels.attention(4, 32768, 32768, 16, 16, 128, causal=c) for c in (True, False))
    assert causal / full == pytest.approx(0.5, abs=0.06)


def test_a_prefix_adds_its_keys():
    kernels = devices.get("a100-sxm-80gb").kernels
    alone = kernels.attention(8, 4096, 4096, 32, 32, 128)
    behind = kernels.attention(8, 4096, 12288, 32, 32, 128)
    # half a square against half a square and two squares
    assert behind / alone == pytest.approx(5.0, rel=0.1)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(devices.names()),
    batch=st.integers(1, 64),
    length=st.integers(1, 65536),
    kv_heads=st.integers(1, 16),
    group=st.integers(1, 8),
    head_dim=st.integers(16, 320),
    direction=st.sampled_from(["forward", "backward"]),
    causal=st.booleans(),
)
def test_attention_never_beats_the_peak(name, batch, length, kv_heads, group, head_dim, direction, causal):
    device = devices.get(name)
    dtype = "bf16" if "bf16" in device.peak_flops else "fp16"
    heads = kv_heads * group
    seconds = float(
        device.kernels.attention(
            batch, length, length, heads, kv_heads, head_dim, causal=causal, dtype=dtype, direction=direction
        )
    )
    flops = (2.5 if direction == "backward" else 1.0) * 4.0 * batch * heads * length**2 * head_dim
    assert np.isfinite(seconds)
    assert seconds > flops / (2.0 if causal else 1.0) / device.peak(dtype)


def test_head_dimensions_between_the_known_ones_lie_between():
    kernels = devices.get("h100-sxm").kernels
    shares = [tflops(kernels, np.array([8192]), d, True, "forward", heads=16)[0] for d in (64, 96, 128)]
    assert shares[0] < shares[1] < shares[2]


def test_values_of_another_dimension_count_by_the_mean():
    kernels = devices.get("h100-sxm").kernels
    latent = kernels.attention(1, 4096, 4096, 128, 128, 192, v_head_dim=128)
    assert latent == kernels.attention(1, 4096, 4096, 128, 128, 160)


def test_serving_libraries_pay_for_the_append():
    kernels = devices.get("h100-sxm").kernels.using("vllm")
    shape = (8, 1024, 1024, 32, 32, 128)
    assert kernels.attention(*shape, appends=True) > kernels.attention(*shape)


def test_an_unknown_direction():
    with pytest.raises(UnknownNameError, match="backward"):
        devices.get("h100-sxm").kernels.attention(1, 16, 16, 1, 1, 64, direction="backwards")
