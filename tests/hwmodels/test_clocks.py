"""Devices at lower clocks: dynamic power against measured sweeps, kernel times, and errors."""

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.clocks import dynamic_power
from hwmodels.device import devices

PREFILL_W = {510: 31.2, 869: 39.7, 1228: 48.6, 1582: 58.6, 1942: 81.8, 2302: 101.0, 2595: 136.6}
"""Power of a compute-bound prefill by clock, MHz (Markliu225/powerchar@399094c, results_freq_prefill.csv)."""
H200_DECODE = np.array(
    [
        (345, 673.5, 252.5),
        (524, 975.9, 301.8),
        (768, 1295.1, 370.4),
        (1085, 1629.2, 420.7),
        (1298, 1851.3, 486.9),
        (1525, 2128.1, 610.8),
        (1687, 2290.7, 665.1),
    ]
)
"""Clock in MHz, tokens/s and W of a decode on H200 (the same source, data_h200/chat-phi3_decode.csv): not
among the rows that the voltages are fitted on."""


def test_dynamic_power_follows_measured_clocks():
    clocks, watts = np.array(list(PREFILL_W)), np.array(list(PREFILL_W.values()))
    terms = np.stack([np.ones(len(clocks)), dynamic_power(clocks / 2700)], axis=1)
    fitted = terms @ np.linalg.lstsq(terms, watts, rcond=None)[0]
    assert np.abs(fitted / watts - 1).max() < 0.06
    clocks, tokens, watts = H200_DECODE.T
    terms = np.stack([np.ones(len(clocks)), dynamic_power(clocks / 1980), tokens], axis=1)
    fitted = terms @ np.linalg.lstsq(terms, watts, rcond=None)[0]
    assert np.abs(fitted / watts - 1).max() < 0.04


def test_dynamic_power_rises_with_the_clock():
    clocks = np.linspace(0.3, 1.0, 50)
    assert (np.diff(dynamic_power(clocks)) > 0).all()
    assert dynamic_power(1.0) == 1.0


def test_a_lower_clock_slows_compute_and_not_memory():
    device = devices.get("h100-sxm")
    slow = device.at_clock(0.5 * device.clock_hz)
    assert slow.peak("bf16") == pytest.approx(0.5 * device.peak("bf16"))
    assert slow.memory_bandwidth == device.memory_bandwidth
    large, small = ((m, 8192, 8192) for m in (8192, 16))
    assert 1.5 < slow.kernels.gemm(*large) / device.kernels.gemm(*large) <= 2.0
    assert slow.kernels.gemm(*small) / device.kernels.gemm(*small) < 1.1
    assert slow.at_clock(0.4 * device.clock_hz).clock_share == pytest.approx(0.4)


def test_the_full_clock_changes_nothing():
    device = devices.get("a100-sxm-80gb")
    assert device.at_clock(device.clock_hz) is device
    assert device.at_clock(2 * device.clock_hz) is device


def test_clocks_out_of_range_are_refused():
    with pytest.raises(InputError, match="at least 549 MHz on h100-sxm, found 300"):
        devices.get("h100-sxm").at_clock(300e6)
    with pytest.raises(InputError, match="the clock of gaudi2 is not known"):
        devices.get("gaudi2").at_clock(1e9)
