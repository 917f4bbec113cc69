"""Closed forms against the exact longest path, against published formulas, and over arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.schedules import PipelineTimes, WorkTimes, schedules
from simulator.schedules.base import position_times
from simulator.schedules.walk import walk

ends = st.floats(0.75, 1.4)


def exact(name, times):
    """The longest path of one plan; blocking sends are counted into the work before them."""
    schedule = schedules[name]
    p, m, v = int(times.stages), int(times.micro_batches), int(times.chunks)
    positions = len(schedule.routes(p, v)[0])
    forward, backward = position_times(times, schedule.routes(p, v)[0])
    hop = times.transfer
    if not times.overlap_transfer and p > 1:
        forward = [each + hop for each in forward[:-1]] + forward[-1:]
        backward = backward[:1] + [each + hop for each in backward[1:]]
        hop = 0.0
    work = WorkTimes(forward, backward, [0.0] * positions, hop)
    return walk(schedule, p, m, v, schedule.orders(p, m, v), work).seconds


@st.composite
def pipelines(draw, chunks=(1, 1), groups=False, fewest=1):
    p = draw(st.integers(fewest, 10))
    m = p * draw(st.integers(1, 6)) if groups else draw(st.integers(1, 40))
    v = draw(st.integers(*chunks))
    b = draw(st.floats(1.0, 3.0))
    transfer = draw(st.sampled_from([0.0, 0.01, 0.1])) * (1 + b) / 2 / v
    # An end of one chunk cannot be less than nothing.
    least = max(0.75, 1 - 0.5 / v)
    scale = [max(draw(ends), least) for _ in range(4)]
    forward, backward = (scale[0], 1.0, scale[1]), (b * scale[2], b, b * scale[3])
    return PipelineTimes.of_equal(p, m, v, forward, backward, transfer, draw(st.booleans()))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(pipelines())
def test_gpipe_is_exact(times):
    assert schedules["gpipe"].makespan(times) == pytest.approx(exact("gpipe", times), rel=1e-9)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(pipelines(chunks=(2, 5), fewest=2))
def test_breadth_first_is_exact(times):
    found = schedules["breadth-first"].makespan(times)
    assert found == pytest.approx(exact("breadth-first", times), rel=1e-9)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(pipelines())
def test_1f1b_is_within_two_percent(times):
    assert schedules["1f1b"].makespan(times) == pytest.approx(exact("1f1b", times), rel=0.02)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(pipelines(chunks=(2, 5), groups=True, fewest=2))
def test_interleaved_never_promises_much_more_speed_than_there_is(times):
    found, true = float(schedules["interleaved"].makespan(times)), exact("interleaved", times)
    assert true * 0.95 <= found <= true * 1.02


@pytest.mark.slow
def test_interleaved_is_within_two_percent_for_nearly_all_plans():
    random = np.random.default_rng(7)
    errors = []
    for _ in range(200):
        p, v = int(random.integers(2, 11)), int(random.integers(2, 6))
        m = p * int(random.integers(1, 8))
        e, b = random.uniform(0.9, 1.25, 4), random.uniform(1.5, 2.5)
        forward, backward = (e[0], 1.0, e[1]), (b * e[2], b, b * e[3])
        hop, overlaps = random.choice([0, 0.02]) / v, random.random() < 0.5
        times = PipelineTimes.of_equal(p, m, v, forward, backward, hop, overlaps)
        errors.append(abs(float(schedules["interleaved"].makespan(times)) / exact("interleaved", times) - 1))
    assert np.quantile(errors, 0.98) <= 0.02
    assert np.median(errors) <= 0.001


def uneven_pipeline(random, name):
    """Ranks that differ by kind of layer or of device, up to four equal ones in a row."""
    lengths = [1, *random.integers(1, 5, random.integers(1, 5)), 1]
    several = name in ("interleaved", "breadth-first")
    p, v = int(sum(lengths)), int(random.integers(2, 5)) if several else 1
    m = p * int(random.integers(1, 6)) if name == "interleaved" else int(random.integers(1, 41))
    ratio, ends = random.uniform(1.5, 2.5), random.uniform(0.0, 0.2, 2)
    forward = random.uniform(0.6, 1.5, len(lengths))
    forward[[0, -1]] += ends * several
    hop, overlaps = random.choice([0.0, 0.02]) / v, bool(random.integers(2))
    both = forward, ratio * forward, ends, ratio * ends
    return PipelineTimes(p, m, v, np.array(lengths), *both, hop, overlaps)


@pytest.mark.parametrize(
    ("name", "median", "least", "most"),
    [
        ("gpipe", 1e-12, -1e-9, 1e-9),
        ("breadth-first", 1e-3, -0.03, 0.01),
        ("1f1b", 1e-3, -0.02, 0.01),
        ("interleaved", 1e-3, -0.05, 0.01),
    ],
)
def test_closed_forms_read_every_stage(name, median, least, most):
    random = np.random.default_rng(11)
    errors = []
    for _ in range(120):
        times = uneven_pipeline(random, name)
        errors.append(float(schedules[name].makespan(times)) / exact(name, times) - 1)
    assert least <= min(errors)
    assert max(errors) <= most
    assert np.median(np.abs(errors)) <= median


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_equal_stages_give_the_textbook_bubble(name):
    p, m = np.array([2, 4, 16]), np.array([[8], [64]])
    times = PipelineTimes.of_equal(p, m, 1, (1, 1, 1), (2, 2, 2), 0, False)
    np.testing.assert_allclose(schedules[name].makespan(times), 3.0 * (m + p - 1))


def test_equal_stages_give_the_interleaved_bubble():
    """(m + (p - 1) / v) (forward + backward), Narayanan et al., section 2.2.2."""
    p, m, v = np.array([4, 8, 8]), np.array([8, 64, 64]), np.array([2, 2, 4])
    times = PipelineTimes.of_equal(p, m, v, (1, 1, 1), (2, 2, 2), 0, True)
    np.testing.assert_allclose(schedules["interleaved"].makespan(times), 3.0 * (m + (p - 1) / v))


def test_a_blocking_transfer_is_paid_both_ways_for_each_micro_batch():
    few, many = (PipelineTimes.of_equal(8, m, 1, (1, 1, 1), (2, 2, 2), 0.1, False) for m in (32, 132))
    steady = schedules["1f1b"].makespan(many) - schedules["1f1b"].makespan(few)
    assert steady == pytest.approx(100 * (3 + 2 * 0.1))


def test_1f1b_waits_for_transfers_even_where_they_do_not_block():
    """A rank's warm-up is just as long as the way there and back, so the way's transfers show."""
    few, many = (PipelineTimes.of_equal(8, m, 1, (1, 1, 1), (2, 2, 2), 0.1, True) for m in (32, 832))
    steady = schedules["1f1b"].makespan(many) - schedules["1f1b"].makespan(few)
    assert steady / 800 == pytest.approx(3 + 2 * 0.1 * 7 / 8, rel=0.01)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "breadth-first"])
def test_arrays_give_what_single_plans_give(name):
    random = np.random.default_rng(3)
    count = 50
    v = (
        random.integers(2, 5, count)
        if name in ("interleaved", "breadth-first")
        else np.ones(count, dtype=int)
    )
    p = random.integers(2, 9, count)
    m = p * random.integers(1, 9, count)
    e = random.uniform(0.9, 1.2, (7, count))
    blocks = random.random(count) < 0.5
    whole = PipelineTimes.of_equal(p, m, v, (e[0], e[1], e[2]), (e[3], e[4], e[5]), e[6] / 50, blocks)
    together = schedules[name].makespan(whole)
    for i in range(count):
        times = e[:, i]
        ends = tuple(times[:3]), tuple(times[3:6])
        one = PipelineTimes.of_equal(p[i], m[i], v[i], *ends, times[6] / 50, blocks[i])
        assert schedules[name].makespan(one) == pytest.approx(together[i], rel=1e-12)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_two_stages_without_chunks_need_no_middle(name):
    """Whatever a rank without an end would cost, there is none."""
    times = [
        PipelineTimes.of_equal(2, 8, 1, (1.0, middle, 1.2), (2.0, middle, 2.4), 0.0, True)
        for middle in (0.5, 1.0)
    ]
    a, b = (float(schedules[name].makespan(each)) for each in times)
    assert a == pytest.approx(b) == pytest.approx(exact(name, times[0]), rel=0.02)


def test_a_slow_last_stage_sets_the_pace():
    times = PipelineTimes.of_equal(4, 100, 1, (1, 1, 2), (2, 2, 4), 0, True)
    assert schedules["1f1b"].makespan(times) == pytest.approx(3 * 3 + 100 * 6)
