import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InputError, UnknownNameError
from hwmodels.device import devices
from hwmodels.kernels.calibration import calibrations
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import (
    GemmCalls,
    Roofline,
    power_mean,
    power_norm,
    roofline_seconds,
    rounds,
    tile_wave_seconds,
)
from hwmodels.kernels.grouped_gemm import Groups, grouped_gemm_seconds

SIDES = st.integers(1, 65536)
NAMES = devices.names()


def dtype_of(device):
    return "bf16" if "bf16" in device.peak_flops else "fp16"


def tflops(name, m, n, k, **how):
    return 2.0 * m * n * k / float(devices.get(name).kernels.gemm(m, n, k, **how)) / 1e12


@settings(max_examples=60, deadline=None)
@given(m=SIDES, n=SIDES, k=SIDES, name=st.sampled_from(NAMES))
def test_no_product_beats_the_peak_or_is_free(m, n, k, name):
    device = devices.get(name)
    seconds = float(device.kernels.gemm(m, n, k, dtype_of(device)))
    assert np.isfinite(seconds)
    assert seconds >= 2.0 * m * n * k / device.peak(dtype_of(device))
    assert seconds > 5e-7


# Best shapes of the ml-engineering MAMF table (Bekman, compute/accelerator), bf16 TFLOP/s.
@settings(max_examples=30, deadline=None)
@given(m=SIDES, n=SIDES, inputs=st.integers(1, 4096), name=st.sampled_from(NAMES))
def test_a_window_spares_bytes_and_no_work(m, n, inputs, name):
    device = devices.get(name)
    whole, once = (
        float(device.kernels.batched_gemm(1, m, n, 9 * inputs, dtype_of(device), window=window))
        for window in (1.0, 9.0)
    )
    assert 2.0 * m * n * 9 * inputs / device.peak(dtype_of(device)) <= once <= whole


def test_a_shallow_convolution_is_bound_by_its_window():
    kernels = devices.get("rtx-4090").kernels
    whole, once = (float(kernels.batched_gemm(1, 2**18, 64, 576, window=window)) for window in (1.0, 9.0))
    assert once < whole / 2


@pytest.mark.parametrize(
    ("name", "shape", "published", "tolerance"),
    [
        ("a100-sxm-80gb", (1024, 10240, 5120), 271.2, 0.05),
        ("a100-pcie-80gb", (2048, 5120, 6144), 252.9, 0.02),
        ("h100-sxm", (2048, 2048, 13312), 794.5, 0.05),
        pytest.param(
            *("b200", (1792, 16128, 3072), 1745.0, 0.12),
            marks=pytest.mark.xfail(
                strict=True, reason="1,535: 12.05 % off, by products of an inference release"
            ),
        ),
        ("mi300x", (10240, 15360, 8192), 668.4, 0.02),
        ("gaudi2", (14336, 15360, 2048), 418.7, 0.02),
    ],
)
def test_published_best_shapes(name, shape, published, tolerance):
    assert tflops(name, *shape) == pytest.approx(published, rel=tolerance)


@pytest.mark.parametrize(("name", "low", "high"), [("a100-sxm-80gb", 235, 285), ("h100-sxm", 640, 830)])
@pytest.mark.parametrize("tokens", [8192, 16384, 65536, 262144])
def test_large_products_saturate(name, low, high, tokens):
    assert low < tflops(name, tokens, 12288, 12288) < high


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm", "h200-sxm"])
def test_twice_the_rows_take_twice_as_long_when_there_are_many(name):
    kernels = devices.get(name).kernels
    once, twice = kernels.gemm([16384, 32768], 8192, 8192)
    # On H200 the measured rate falls by another tenth at 32768 rows.
    assert twice / once == pytest.approx(2.0, rel=0.12)


def test_small_products_are_far_from_the_peak():
    assert tflops("h100-sxm", 1024, 1024, 1024) < 0.6 * tflops("h100-sxm", 8192, 8192, 8192)


def test_a_thin_product_is_limited_by_its_weights():
    device = devices.get("h100-sxm")
    weights = 2.0 * 16384 * 65536
    seconds = float(device.kernels.gemm(1, 16384, 65536))
    assert weights / device.memory_bandwidth < seconds < 1.4 * weights / device.memory_bandwidth


def test_shapes_broadcast_and_do_not_depend_on_company():
    kernels = devices.get("a100-sxm-80gb").kernels
    m = np.geomspace(1, 65536, 400).round()
    n = np.array([[128.0], [5120.0], [14336.0]])
    together = kernels.gemm(m, n, 4096)
    assert together.shape == (3, 400)
    assert together[1, 17] == pytest.approx(float(kernels.gemm(m[17], 5120, 4096)), rel=1e-6)


def test_a_product_costs_the_same_alone_and_among_others():
    kernels = devices.get("h100-sxm").kernels
    rng = np.random.default_rng(1)
    m, n, k = np.round(2 ** rng.uniform(0, 14, (3, 700)))
    together = kernels.batched_gemm(1, m, n, k)
    alone = [float(kernels.batched_gemm(1, *shape)) for shape in zip(m, n, k, strict=True)]
    assert together == pytest.approx(np.array(alone), rel=1e-12)


def test_one_batch_is_one_product():
    kernels = devices.get("h100-sxm").kernels.uncorrected()
    assert kernels.batched_gemm(1, 2048, 2048, 128) == pytest.approx(kernels.gemm(2048, 2048, 128))
    assert kernels.batched_gemm(64, 2048, 2048, 128) > 20 * kernels.batched_gemm(1, 2048, 2048, 128)


def test_half_precisions_share_constants_and_wider_ones_are_slower():
    kernels = devices.get("a100-sxm-80gb").kernels
    assert kernels.gemm(4096, 4096, 4096, "fp16") == kernels.gemm(4096, 4096, 4096, "bf16")
    assert kernels.gemm(4096, 4096, 4096, "tf32") > 1.5 * kernels.gemm(4096, 4096, 4096, "bf16")
    assert kernels.gemm(4096, 4096, 4096, "fp32") > 6 * kernels.gemm(4096, 4096, 4096, "tf32")


def test_fp8_is_faster_without_its_cast():
    kernels = devices.get("h100-sxm").kernels
    plain, cast = (kernels.gemm(8192, 8192, 8192, "fp8", quantises=q) for q in (False, True))
    assert plain < cast
    assert plain < 0.7 * kernels.gemm(8192, 8192, 8192, "bf16")


def test_steady_work_is_slower():
    kernels = devices.get("h100-sxm").kernels
    assert kernels.sustained().gemm(2048, 4096, 4096) > kernels.gemm(2048, 4096, 4096)


def test_a_dtype_the_device_lacks():
    with pytest.raises(InputError, match="fp8"):
        devices.get("a100-sxm-80gb").kernels.gemm(16, 16, 16, "fp8")


def test_an_unknown_layout():
    with pytest.raises(UnknownNameError, match="dgrad"):
        devices.get("a100-sxm-80gb").kernels.gemm(16, 16, 16, layout="xyz")


def test_the_simple_form_by_hand():
    class Chip:
        peak, bandwidth, element_bytes = 100e12, 1e12, 2.0

    form = Roofline(overhead_s=1e-6, compute_efficiency=0.5, memory_efficiency=0.8, overlap_exponent=1.0)
    one = np.ones(1)
    shape = GemmCalls(one, one * 1000, one * 1000, one * 1000, 2.0)
    # 2e9 FLOP at 50 TFLOP/s and 6 MB at 0.8 TB/s, one after the other
    assert roofline_seconds(form, Chip, shape)[0] == pytest.approx(1e-6 + 40e-6 + 7.5e-6)


@given(a=st.floats(1e-9, 1e3), b=st.floats(1e-9, 1e3), exponent=st.floats(1.0, 12.0))
def test_the_norm_lies_between_the_longer_and_the_sum(a, b, exponent):
    value = float(power_norm(np.array(a), np.array(b), exponent))
    assert max(a, b) * (1 - 1e-12) <= value <= (a + b) * (1 + 1e-12)


def test_rounds_are_whole_or_smooth():
    waves = np.array([0.3, 1.0, 1.2, 2.0])
    assert rounds(waves, 1.0).tolist() == [1.0, 1.0, 2.0, 2.0]
    assert rounds(waves, 0.0).tolist() == [1.0, 1.0, 1.2, 2.0]


def test_the_power_mean_lies_between_the_least_and_the_greatest():
    times = np.array([[3.0, 5.0], [2.0, 5.0]])
    assert power_mean(times, 0.001) == pytest.approx([2.0, 5.0], rel=1e-3)
    wide = power_mean(times, 1.0)
    assert 2.0 < wide[0] < 3.0
    assert wide[1] == pytest.approx(5.0)


@given(
    times=st.lists(st.floats(1.0, 1e3), min_size=2, max_size=9),
    which=st.integers(0, 8),
    faster=st.floats(0.01, 1.0),
    spread=st.floats(0.005, 0.5),
)
def test_the_power_mean_falls_with_every_time(times, which, faster, spread):
    before = np.array(times)[:, None]
    after = before.copy()
    after[which % len(times)] *= faster
    assert power_mean(after, spread) <= power_mean(before, spread) * (1 + 1e-12)


def product_forms():
    """Every shipped form of a dense or grouped product, with its name."""
    for name in calibrations.names():
        calibration = calibrations.get(name)
        for library, holder in (("", calibration), *calibration.libraries.items()):
            for dtype, fit in holder.gemm.items():
                if fit.rich:
                    yield f"{name} {library} gemm {dtype}", fit.rich
            for dtype, fit in holder.grouped_gemm.items():
                yield f"{name} {library} grouped_gemm {dtype}", fit.form


FORMS = dict(product_forms())
FASTER = {
    "bandwidth": ("bandwidth",),
    "peak": ("peak",),
    "cache": ("l2_bytes",),
    "multiprocessors": ("multiprocessors", "peak"),
}


@settings(max_examples=300, deadline=None)
@given(
    m=SIDES,
    n=SIDES,
    k=SIDES,
    experts=st.integers(1, 256),
    name=st.sampled_from(sorted(FORMS)),
    figures=st.sampled_from(sorted(FASTER)),
    gain=st.floats(1.0, 4.0),
)
def test_no_product_is_slower_on_a_faster_device(m, n, k, experts, name, figures, gain):
    before = Chip(9.9e14, 3.35e12, 132.0, 5e7, 2.0, 2.0, fitted_multiprocessors=132.0)
    after = before._replace(**{figure: getattr(before, figure) * gain for figure in FASTER[figures]})
    form, sides = FORMS[name], [np.array([float(side)]) for side in (m, n, k)]

    def seconds(figures):
        if "grouped" in name:
            groups = Groups(sides[0] * experts, sides[1], sides[2], np.array([float(experts)]), 2.0)
            return grouped_gemm_seconds(form, figures, groups)[0]
        return tile_wave_seconds(form, figures, GemmCalls(np.ones(1), *sides, 2.0))[0]

    # Tiles are in single precision.
    assert seconds(after) <= seconds(before) * (1 + 1e-6)


def test_no_product_of_steady_work_runs_faster_than_settled_clocks_let_it():
    device = devices.get("h100-sxm")
    steady, rate = device.kernels.sustained(), device.settled("bf16")
    assert rate == device.settled_flops["bf16"] < device.peak("bf16")
    assert float(steady.settled_seconds(rate, "bf16")) == 1.0
    assert float(device.kernels.settled_seconds(1e15, "bf16")) == 0.0
    assert devices.get("mi355x").settled("bf16") == float("inf")


def test_a_product_costs_the_same_alone_and_beside_products_of_other_depths():
    products = ((1, 128, 64), (64, 4096, 300), (17, 1024, 520), (4096, 8192, 8192), (3, 512, 28672))
    kernels = devices.get("h100-sxm").kernels
    m, n, k = (np.array(sizes, dtype=float) for sizes in zip(*products, strict=True))
    together = kernels.gemm(m, n, k)
    alone = [float(kernels.gemm(*sizes)) for sizes in products]
    assert together == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize("exponent", [1.0, 1.7, 4.0])
def test_overlapped_times_follow_the_power_norm(exponent):
    a, b = np.array([1e-6, 3.0, 5.0]), np.array([2e-3, 3.0, 1e-9])
    expected = (a**exponent + b**exponent) ** (1.0 / exponent)
    assert power_norm(a, b, exponent) == pytest.approx(expected, rel=1e-14)
