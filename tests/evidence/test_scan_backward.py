"""The backward pass of Mamba-2's scan on Blackwell follows from a published pair of trained devices."""

import pytest

from evidence.fits.scan_backward import FITTED, MEASURED, slowdown, trained
from hwmodels.device import devices


def test_the_shipped_slowdown_is_what_the_pair_of_devices_gives():
    steps = {cluster: trained(cluster) for cluster in MEASURED}
    for name in ("gb200", "b200", "b300", "gb300"):
        form = devices.get(name).kernels.calibration.scans["mamba2"].form
        assert form.backward_slowdown == pytest.approx(slowdown(steps), abs=0.02)
    # Hopper keeps the products and bytes of the pass; the old gain was a sixth above the measured one.
    assert devices.get("h200-sxm").kernels.calibration.scans["mamba2"].form.backward_slowdown == 1.0
    gain = steps["dgx-h200"].step / steps[FITTED].step
    assert gain > 1.15 * MEASURED[FITTED] / MEASURED["dgx-h200"]
