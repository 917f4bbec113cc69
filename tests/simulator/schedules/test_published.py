"""Bubbles and memory as the schedules' papers state them, for equal stages and no transfers."""

import pytest

from simulator.schedules import WorkTimes, schedules
from simulator.schedules.walk import validate, walk
from simulator.schedules.zb_auto import ZeroBubbleAuto


def bubble(name, p, m, v=1, f=1.0, b=1.0, w=1.0):
    """Idle units of the busiest-waiting rank; one unit is one micro batch's forward on one rank."""
    schedule = schedules[name]
    chunks = len(schedule.routes(p, v)[0]) / p
    positions = len(schedule.routes(p, v)[0])
    backward = b if schedule.splits_backward else b + w
    times = WorkTimes([f / chunks] * positions, [backward / chunks] * positions, [w / chunks] * positions)
    done = walk(schedule, p, m, v, schedule.orders(p, m, v, times), times)
    return done.period - m * (f + b + w)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 24), (16, 64)])
def test_1f1b_and_gpipe_idle_for_all_but_one_stage(p, m):
    assert bubble("1f1b", p, m) == pytest.approx(3 * (p - 1))
    assert bubble("gpipe", p, m) == pytest.approx(3 * (p - 1))


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (8, 24, 3), (16, 64, 6)])
def test_interleaving_divides_the_bubble_by_the_chunks(p, m, v):
    assert bubble("interleaved", p, m, v) == pytest.approx(3 * (p - 1) / v)
    assert bubble("breadth-first", p, m, v) == pytest.approx(3 * (p - 1) / v)


@pytest.mark.parametrize(("f", "b", "w"), [(1, 1, 1), (1, 1.2, 0.8), (1, 0.9, 0.9)])
@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 24), (16, 64)])
def test_zb_h1_bubble(p, m, f, b, w):
    """(p - 1)(F + B - W), Qi et al., table 2."""
    assert bubble("zb-h1", p, m, 1, f, b, w) == pytest.approx((p - 1) * (f + b - w), rel=1e-9, abs=0.35 * p)


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 24), (16, 64)])
def test_zb_h1_and_h2_bubbles_with_equal_passes(p, m):
    """(p - 1)(F + B - W) and (p - 1)(F + B - 2W), Qi et al., table 2."""
    assert bubble("zb-h1", p, m) == pytest.approx(p - 1)
    assert bubble("zb-h2", p, m) == pytest.approx(0)


@pytest.mark.parametrize(("p", "m"), [(4, 12), (8, 32)])
def test_more_memory_never_lengthens_the_automatic_schedule(p, m):
    one, two = bubble("zb-1p", p, m), bubble("zb-2p", p, m)
    assert two <= one <= bubble("zb-h1", p, m) < bubble("1f1b", p, m)
    assert two == pytest.approx(0, abs=1e-9)


def test_automatic_schedule_uses_the_memory_it_is_given():
    lengths, peaks = [], []
    for limit in (6, 8, 12, 15):
        schedule = ZeroBubbleAuto("zb-limited", limit / 8)
        times = WorkTimes([1.0] * 8, [1.0] * 8, [1.0] * 8)
        try:
            done = walk(schedule, 8, 32, 1, schedule.orders(8, 32, 1, times), times)
        except Exception as error:  # pragma: no cover - would fail the test with its text
            pytest.fail(str(error))
        lengths.append(done.period)
        peaks.append(max(done.peak))
        assert max(done.peak) <= limit
    assert lengths == sorted(lengths, reverse=True)
    assert peaks == sorted(peaks)


@pytest.mark.parametrize(("p", "m"), [(4, 4), (8, 8), (8, 16), (8, 32), (16, 16), (16, 32)])
def test_chimeras_idle_time_does_not_depend_on_the_micro_batches(p, m):
    """Bubble share (D - 2) / (3N/2 + D - 2), a backward taking two forwards (Li and Hoefler, table 2)."""
    share = (p - 2) / (1.5 * m + p - 2)
    assert bubble("chimera", p, m, 2) / (3 * m) == pytest.approx(share / (1 - share))


@pytest.mark.parametrize(
    ("p", "m", "most"), [(4, 4, 2), (4, 8, 2.5), (8, 8, 6.5), (8, 16, 6.5), (16, 16, 15)]
)
def test_bitpipe_comes_near_the_published_bubble(p, m, most):
    """Bubble share (D - 2) / (3N + D - 2), Wu et al., table 2: p - 2 units; ours is a little more."""
    assert p - 2 <= bubble("bitpipe", p, m, 4) <= most


@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 24), (16, 64)])
def test_dualpipe_bubble_is_within_the_published_one(p, m):
    """(p/2 - 1)(F&B + B - 3W), DeepSeek-V3 table 2, where a forward and a backward run as one piece.

    Here each of the two sends its result when it ends, so ranks wait less.
    """
    published = (p / 2 - 1) * (3 + 2 - 3)
    assert 0 < bubble("dualpipe", p, m, 2) <= published


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 7), (8, 15), (8, 32), (16, 64)])
def test_zero_bubble_v_idles_not_at_all_at_the_memory_of_1f1b(p, m):
    """Qi et al., section 6: zero bubble from 2p - 1 micro batches on, where all passes take equally long."""
    assert bubble("zb-v", p, m, 2) == pytest.approx(0, abs=1e-9)
    assert max(validate(schedules["zb-v"], p, m, 2).peak) == p


@pytest.mark.parametrize(("f", "b", "w"), [(1, 1.2, 0.7), (1, 1.3, 0.9)])
@pytest.mark.parametrize("m", [16, 64])
def test_zero_bubble_v_idles_less_than_zb_h1_however_many_micro_batches(f, b, w, m):
    assert bubble("zb-v", 8, m, 2, f, b, w) < bubble("zb-h1", 8, m, 1, f, b, w)


@pytest.mark.parametrize("p", [4, 8, 16])
def test_v_half_holds_about_half_of_1f1b(p):
    peak = max(validate(schedules["v-half"], p, 4 * p, 2).peak)
    assert p / 2 <= peak <= p / 2 + 1
    assert bubble("v-half", p, 4 * p, 2) < bubble("1f1b", p, 4 * p)


@pytest.mark.parametrize("p", [4, 8])
def test_waves_shrink_the_bubble_when_micro_batches_are_few(p):
    one, two, four = (bubble("hanayo", p, p, chunks) for chunks in (2, 4, 8))
    assert one == 2 * p - 2
    assert one > 1.8 * two > 1.8 * 1.8 * four
    assert bubble("hanayo", p, 4 * p, 2) == one < bubble("1f1b", p, p)


def test_offload_halves_interleaved_activations():
    """Half of each rank's chunks go to the host, the longer-lived half (Wan et al., section 3)."""
    full = max(validate(schedules["interleaved"], 8, 32, 4).peak)
    kept = max(validate(schedules["pipeoffload"], 8, 32, 4).peak)
    assert kept < 0.55 * full


def test_full_offload_keeps_as_few_chunks_however_many_stages():
    """What is on its way out, in use and on its way back (Wan et al., figure 10)."""
    held = [max(validate(schedules["pipeoffload-full"], p, 4 * p, 4).peak) * 4 for p in (4, 8, 16)]
    assert held[0] == held[1] == held[2] <= 5


@pytest.mark.parametrize("name", ["2bp", "zeropp"])
def test_weight_gradients_fill_bubbles(name):
    v = 2 if name == "zeropp" else 1
    assert bubble(name, 4, 8, v) < bubble("1f1b", 4, 8)
