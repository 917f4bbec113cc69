"""Combined passes of two micro batches."""

import numpy as np
import pytest

from simulator.plan import Plan, Plans
from simulator.training.combined import Work, alone_share, beside_partner, in_fixed_shares, waits_together

ATTENTION, EXPERTS = Work(1.0, 2.0, 0.5), Work(3.0, 4.0, 1.0)


def hidden(forward: float, backward: float, slows: float = 0.0) -> tuple[float, float]:
    return tuple(float(x) for x in beside_partner(forward, backward, ATTENTION, EXPERTS, (slows, slows)))


def test_short_exchanges_run_beside_kernels_whole():
    assert hidden(2.0, 1.0) == (2.0, 1.0)


def test_a_combination_longer_than_attention_is_exposed():
    # Halves of 3: dispatch forward beside experts (5), combination forward beside attention backward and its
    # weights (2.5), combination backward beside attention forward and what is left of them (none).
    assert hidden(6.0, 6.0) == (3.0 + 2.5, 3.0 + 1.0)


def test_exchanges_hide_no_more_than_all_kernels():
    assert sum(hidden(100.0, 100.0)) == pytest.approx(sum(ATTENTION) + sum(EXPERTS))
    assert sum(hidden(100.0, 100.0, 0.5)) == pytest.approx(2 * (sum(ATTENTION) + sum(EXPERTS)))


def test_weight_gradients_follow_short_exchanges():
    # A dispatch shorter than the experts' backward leaves all of their weights to the next one.
    assert hidden(2.0, 8.0) == (2.0, 4.0 + 1.0 + 0.5)


def test_the_first_and_the_last_pass_are_alone(make_setting):
    setting = make_setting(devices=64)
    batch = setting.training.global_batch
    plans = Plans.of(
        [
            Plan(data=16),
            Plan(data=16, pipeline=4, virtual_pipeline=2, schedule="interleaved"),
        ]
    )
    micro_batches = batch // 16
    expected = 1 / micro_batches, 8 / (2 * micro_batches + 3)
    assert alone_share(setting, plans) == pytest.approx(np.minimum(expected, 1.0))


def test_one_host_launches_both_micro_batches():
    # Three passes wait 3, 0 and 1 s for the host; in turn, the kernels of the second hide 3 of these.
    lags = [np.array([value, value]) for value in (3.0, -3.0, 1.0)]
    lags[1][1] = -9.0
    kept = waits_together(*lags)
    assert kept == pytest.approx([1 / 4, 0.0])
    assert waits_together(np.array([-1.0]), np.array([-2.0])) == pytest.approx([1.0])


def test_combined_passes_share_their_time_by_flop(make_setting):
    setting = make_setting(devices=8)
    changes = {}, {"recompute": "full"}, {"overlap_expert": False}, {"expert": 1}
    plans = Plans.of(
        [Plan(**{"data": 8, "expert": 8, "overlap_expert": True} | change) for change in changes]
    )
    forward, backward = in_fixed_shares(setting, plans, np.full(4, 5.0), np.full(4, 7.0))
    assert forward == pytest.approx([4.0, 3.0, 5.0, 5.0])
    assert forward + backward == pytest.approx([12.0] * 4)
