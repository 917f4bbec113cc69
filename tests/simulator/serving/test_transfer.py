"""KV transfers: scalars, arrays and the event queue by one formula, against its limits."""

import numpy as np
import pytest

from hwmodels.cluster import clusters
from simulator.serving.fleet.transfer import TransferEnd, Transfers, arrival_s
from simulator.serving.state import Route

LAYERS = 40


def test_arrays_are_their_scalars():
    random = np.random.default_rng(3)
    sending, computed, wait = random.exponential(0.1, (3, 50))
    cases = np.stack([sending, computed, wait], axis=1).tolist()
    each = [arrival_s(send, compute, LAYERS, waited) for send, compute, waited in cases]
    assert arrival_s(sending, computed, LAYERS, wait) == pytest.approx(np.array(each), rel=1e-15)


@pytest.mark.parametrize(
    ("sending", "computed", "layers", "expected"),
    [
        # A fast link: only the last layer is left when the prompt ends.
        (0.04, 1.0, LAYERS, 0.001),
        # A slow link: it is busy from the first layer on.
        (2.0, 0.4, LAYERS, 2.0 - 0.4 * 39 / 40),
        # As a whole: nothing overlaps.
        (0.04, 1.0, 1, 0.04),
    ],
)
def test_limits(sending, computed, layers, expected):
    assert arrival_s(sending, computed, layers) == pytest.approx(expected)


@pytest.fixture
def transfers_of(monkeypatch):
    """Transfers over links of 1 GB/s; ends by source and target, bytes and the end of a prompt from 0 on."""
    monkeypatch.setattr(Transfers, "route", lambda *_: Route(1e9, 0.0))
    replicas = [TransferEnd(number, clusters.get("dgx-h100"), number, 1) for number in range(5)]

    def ends(layerwise, *pairs, bytes_):
        transfers = Transfers(LAYERS, layerwise)
        return [
            transfers.end(replicas[source], replicas[target], bytes_, 0.0, 0.5) for source, target in pairs
        ]

    return ends


@pytest.mark.parametrize("layerwise", [True, False])
def test_prompts_of_one_replica_go_one_after_the_other(layerwise, transfers_of):
    ends = transfers_of(layerwise, (0, 1), (0, 2), (3, 4), bytes_=1e9)
    assert ends[1:] == [pytest.approx(ends[0] + 1.0), ends[0]]


def test_prompts_that_are_computed_together_hold_up_no_fast_link(transfers_of):
    ends = transfers_of(True, *[(0, 1)] * 20, bytes_=1e7)
    assert ends == pytest.approx([0.5 + 0.01 / LAYERS] * 20)


def test_bytes_of_prompts_that_are_computed_together_take_their_time(transfers_of):
    ends = transfers_of(True, *[(0, 1)] * 20, bytes_=1e8)
    assert ends[-1] == pytest.approx(0.5 / LAYERS + 20 * 0.1)
