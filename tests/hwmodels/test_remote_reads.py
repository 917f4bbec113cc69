"""All-reduce kernels of serving engines, against measured ones (aiconfigurator's tables)."""

import numpy as np
import pytest

from hwmodels.collectives.calibration import link_calibrations
from hwmodels.collectives.remote_reads import remote_read_seconds


def seconds(link, bandwidth, ranks, size):
    form = link_calibrations.get(link).remote_reads
    assert form is not None
    return remote_read_seconds(form, bandwidth, np.asarray(float(ranks)), np.asarray(size, dtype=float))


@pytest.mark.parametrize(
    ("link", "bandwidth", "ranks", "size", "measured_us"),
    [
        ("nvlink4", 450e9, 8, 1024, 4.6),
        ("nvlink4", 450e9, 8, 2**20, 15.0),
        ("nvlink4", 450e9, 2, 4 * 2**20, 20.2),
        ("nvlink3", 300e9, 8, 2**20, 21.7),
        ("nvlink5", 900e9, 8, 4 * 2**20, 26.3),
        ("pcie4", 27e9, 2, 2**20, 60.2),
    ],
)
def test_measured_kernels_of_vllm(link, bandwidth, ranks, size, measured_us):
    assert 1e6 * float(seconds(link, bandwidth, ranks, size)) == pytest.approx(measured_us, rel=0.3)


def test_one_shot_for_small_messages_and_two_for_large():
    sizes = 2.0 ** np.arange(10, 24)
    form = link_calibrations.get("nvlink4").remote_reads
    assert form is not None
    two_shot = form.start_s + 6 * form.rank_s + form.second_s + 1.75 * sizes / (form.efficiency * 450e9)
    found = seconds("nvlink4", 450e9, 8, sizes)
    assert np.all(found[:4] < two_shot[:4])
    assert found[-4:] == pytest.approx(two_shot[-4:])
    assert np.all(np.diff(found) > 0)


def test_links_without_peer_to_peer_have_none():
    assert link_calibrations.get("pcie4-host").remote_reads is None
