"""The clock: order, contention, flows, ends that hand calculation gives."""

import gc
import weakref
from itertools import pairwise

import numpy as np
import pytest
from simpy import Environment

from core.errors import InputError
from simulator.engine.clock import Clock, Contention
from simulator.engine.graph import Flow, Stream, TaskGraph

COMPUTE = Stream("compute", "compute")
DATA, TENSOR = Stream("data"), Stream("tensor")
PIPELINE = Stream("pipeline", contends=False)
FROM_HOST = Stream("from host", "copy in", contends=False)


def lanes(graph, *streams, rank=0):
    return [graph.lane_of(rank, stream) for stream in streams]


def test_a_lane_serves_in_order_and_a_task_waits_for_what_it_needs():
    graph = TaskGraph()
    compute, send = lanes(graph, COMPUTE, PIPELINE)
    first = graph.add(compute, 2.0, "first")
    second = graph.add(compute, 3.0, "second")
    third = graph.add(send, 1.0, "third", after=[first])
    fourth = graph.add(compute, 1.0, "fourth", after=[third])
    starts, ends = Clock(graph).run()
    assert starts[[first, second, third, fourth]].tolist() == [0.0, 2.0, 2.0, 5.0]
    assert ends[fourth] == 6.0


def test_work_that_takes_no_time_passes_at_once():
    graph = TaskGraph()
    (compute,) = lanes(graph, COMPUTE)
    tasks = [graph.add(compute, 1.0, "work") for _ in range(3)]
    gate = graph.gate(tasks)
    last = graph.add(graph.lane_of(1, COMPUTE), 1.0, "elsewhere", after=[gate])
    starts, ends = Clock(graph).run()
    assert (starts[gate], ends[gate], starts[last]) == (3.0, 3.0, 3.0)


def test_a_circle_is_a_deadlock_with_a_name():
    graph = TaskGraph("micro batch")
    item = graph.add_item("pass", 3)
    a = graph.add(graph.lane_of(0, COMPUTE), 1.0, "forward", item=item)
    b = graph.add(graph.lane_of(1, COMPUTE), 1.0, "backward", item=item, after=[a])
    graph.edge(b, a)
    with pytest.raises(InputError, match=r"deadlock: 2 tasks .* 'forward' of micro batch 3 on rank 0"):
        Clock(graph).run()


def test_computation_and_communication_slow_each_other_only_while_both_run():
    graph = TaskGraph()
    compute, data = lanes(graph, COMPUTE, DATA)
    gemm = graph.add(compute, 4.0, "gemm")
    reduce = graph.add(data, 1.0, "reduce")
    starts, ends = Clock(graph, Contention(compute=1.25, communication=2.0)).run()
    # The reduction takes 2 s; by then 2 / 1.25 = 1.6 s of the product are done, 2.4 s are left.
    assert ends[reduce] == pytest.approx(2.0)
    assert ends[gemm] == pytest.approx(4.4)
    assert starts.tolist() == [0.0, 0.0]


def test_contention_stays_on_its_rank_and_host_copies_cause_none():
    graph = TaskGraph()
    gemm = graph.add(graph.lane_of(0, COMPUTE), 4.0, "gemm")
    other = graph.add(graph.lane_of(1, DATA), 1.0, "reduce")
    copy = graph.add(graph.lane_of(0, FROM_HOST), 2.0, "reload")
    _, ends = Clock(graph, Contention(1.5, 1.5)).run()
    assert ends[[gemm, other, copy]].tolist() == [4.0, 1.0, 2.0]


def test_back_to_back_computation_keeps_slowing_a_collective():
    graph = TaskGraph()
    compute, tensor = lanes(graph, COMPUTE, TENSOR)
    for _ in range(10):
        graph.add(compute, 1.0, "gemm")
    collective = graph.add(tensor, 3.0, "gather")
    _, ends = Clock(graph, Contention(1.2, 2.0)).run()
    assert ends[collective] == pytest.approx(6.0)
    # 6 s at 1 / 1.2, the other 5 s of work at full speed.
    assert ends.max() == pytest.approx(6.0 + (10 - 6 / 1.2))


def test_no_slow_down_gives_the_same_times_as_no_contention():
    random = np.random.default_rng(1)
    graph = TaskGraph()
    for rank in range(3):
        for stream in (COMPUTE, DATA):
            for _ in range(20):
                earlier = random.integers(0, max(len(graph), 1), 2) if len(graph) else []
                graph.add(
                    graph.lane_of(rank, stream), random.random(), "work", after=[int(e) for e in earlier]
                )
    plain = Clock(graph).run()
    almost = Clock(graph, Contention(1.0, 1.0 + 1e-12)).run()
    np.testing.assert_allclose(plain[1], almost[1], rtol=1e-9)


def flow(graph, rank, seconds, demand=1.0, links=None, stream=DATA, after=()):
    """A communication that uses so much of its rank's links, or of given ones."""
    task = graph.add(graph.lane_of(rank, stream), seconds, "flow", after=after)
    graph.flows[task] = Flow(demand, ports(graph, rank) if links is None else links)
    return task


def ports(graph, rank):
    """The links out of a rank and into it, 1 B/s each."""
    while len(graph.capacity) < 2 * rank + 2:
        graph.add_link(1.0)
    return 2 * rank, 2 * rank + 1


def test_two_equal_flows_on_one_link_take_twice_as_long():
    graph = TaskGraph()
    flow(graph, 0, 3.0)
    flow(graph, 0, 3.0, stream=PIPELINE)
    _, ends = Clock(graph).run()
    assert ends.tolist() == pytest.approx([6.0, 6.0])


def test_a_flow_that_meets_nothing_takes_its_seconds_to_the_last_bit():
    graph = TaskGraph()
    first = flow(graph, 0, 0.1)
    second = flow(graph, 0, 0.2, stream=PIPELINE, after=[first])
    elsewhere = flow(graph, 1, 0.7)
    _, ends = Clock(graph).run()
    assert ends[[first, second, elsewhere]].tolist() == [0.1, 0.1 + 0.2, 0.7]


def test_flows_that_a_link_can_carry_together_do_not_slow_each_other():
    graph = TaskGraph()
    flow(graph, 0, 2.0, 0.4)
    flow(graph, 0, 3.0, 0.6, stream=PIPELINE)
    _, ends = Clock(graph).run()
    assert ends.tolist() == [2.0, 3.0]


def test_a_flow_that_asks_for_little_gets_it_and_the_other_the_rest():
    graph = TaskGraph()
    small = flow(graph, 0, 2.0, 0.25)
    large = flow(graph, 0, 2.0, 1.0, stream=PIPELINE)
    _, ends = Clock(graph).run()
    assert ends[small] == pytest.approx(2.0)
    # 2 s at 3/4, the half second of work that is left at full speed.
    assert ends[large] == pytest.approx(2.5)


def test_flows_share_while_they_meet_and_speed_up_when_one_leaves():
    graph = TaskGraph()
    wait = graph.add(graph.lane_of(1, COMPUTE), 1.0, "work")
    long = flow(graph, 0, 4.0, links=(0, 1))
    short = flow(graph, 1, 1.0, links=(1,), after=[wait])
    graph.capacity += [1.0, 1.0]
    _, ends = Clock(graph).run()
    # The short one takes 2 s from 1 s on; by then 2 s of the long one's work are left.
    assert ends[[long, short]].tolist() == pytest.approx([5.0, 3.0])


def test_a_send_meets_what_leaves_the_sender_and_what_enters_the_receiver():
    graph = TaskGraph()
    links = [ports(graph, rank) for rank in range(3)]
    there = flow(graph, 0, 1.0, links=(links[0][0], links[1][1]), stream=PIPELINE)
    back = flow(graph, 1, 1.0, links=(links[1][0], links[0][1]), stream=PIPELINE)
    _, ends = Clock(graph).run()
    assert ends[[there, back]].tolist() == [1.0, 1.0]  # both directions of a link at once
    beside = flow(graph, 2, 1.0, links=(links[2][0], links[1][1]), stream=PIPELINE)
    _, ends = Clock(graph).run()
    assert ends[[there, back, beside]].tolist() == pytest.approx([2.0, 1.0, 2.0])


def test_a_link_moves_its_capacity_whatever_the_number_of_flows():
    graph = TaskGraph()
    for rank in range(7):
        flow(graph, rank, 0.5 * (rank + 1), links=(0,))
    graph.capacity.append(0.5)
    _, ends = Clock(graph).run()
    assert ends.max() == pytest.approx(14.0 / 0.5)
    assert np.all(np.diff(ends) > 0)


@pytest.mark.parametrize("seed", range(5))
def test_what_crosses_a_link_is_never_more_than_it_carries_nor_less_than_was_sent(seed):
    """Between any two ends each link moves at most its capacity; the last bit of all arrives."""
    random = np.random.default_rng(seed)
    graph = TaskGraph()
    graph.capacity += [1.0, 0.8, 1.2]
    for index in range(40):
        work = graph.add(graph.lane_of(index % 8, COMPUTE), float(random.random()), "work")
        links = tuple(int(each) for each in random.permutation(3)[: random.integers(1, 4)])
        flow(graph, index % 8, float(random.random()), float(random.random()), links, after=[work])
    starts, ends = Clock(graph).run()
    for link, capacity in enumerate(graph.capacity):
        crossing = [task for task, each in graph.flows.items() if link in each.links]
        sent = sum(graph.seconds[task] * graph.flows[task].rate for task in crossing)
        busy = np.union1d(starts[crossing], ends[crossing])
        open_for = sum(
            after - before
            for before, after in pairwise(busy)
            if any(starts[task] <= before < ends[task] for task in crossing)
        )
        assert sent <= capacity * open_for * (1 + 1e-9)
    spans = ends - starts
    assert all(spans[task] >= graph.seconds[task] * (1 - 1e-9) for task in graph.flows)


def test_a_thin_link_slows_a_flow_that_is_alone():
    graph = TaskGraph()
    tasks = [flow(graph, rank, 2.0) for rank in range(2)]
    graph.capacity[2] = 0.5
    _, ends = Clock(graph).run()
    assert ends[tasks].tolist() == pytest.approx([2.0, 4.0])


def test_a_flow_beside_computation_is_slowed_too():
    graph = TaskGraph()
    gemm = graph.add(graph.lane_of(0, COMPUTE), 100.0, "gemm")
    task = flow(graph, 0, 2.0)
    _, ends = Clock(graph, Contention(1.0, 1.25)).run()
    assert ends[task] == pytest.approx(2.5)
    assert ends[gemm] == pytest.approx(100.0)


def test_the_same_graph_runs_the_same_way_twice():
    def once():
        random = np.random.default_rng(5)
        graph = TaskGraph()
        for index in range(200):
            after = [int(each) for each in random.integers(0, index, 2)] if index else []
            task = graph.add(
                graph.lane_of(int(random.integers(4)), (COMPUTE, DATA)[index % 2]),
                float(random.random()),
                "w",
                after=after,
            )
            if index % 10 == 1:
                graph.flows[task] = Flow(float(random.random()), (int(random.integers(3)),))
        graph.capacity += [0.5, 1.0, 1.5]
        return Clock(graph, Contention(1.1, 1.3)).run()

    (starts, ends), (again_starts, again_ends) = once(), once()
    assert starts.tobytes() == again_starts.tobytes()
    assert ends.tobytes() == again_ends.tobytes()


# ---- graphs that grow while they run ---------------------------------------------------------------


def test_a_process_adds_tasks_as_others_end():
    """Each iteration is added when the one before it has ended, on a lane made during the run."""
    graph, environment = TaskGraph("iteration"), Environment()
    clock = Clock(graph, environment=environment)
    seen = []

    def server():
        yield environment.timeout(1.0)
        for number in range(3):
            item = graph.add_item("decode", number)
            task = graph.add(graph.lane_of(number % 2, COMPUTE), 2.0, "step", item=item)
            clock.release()
            ended = yield clock.ended(task)
            seen.append((environment.now, ended))

    environment.process(server())
    starts, ends = clock.run()
    assert starts.tolist() == [1.0, 3.0, 5.0]
    assert ends.tolist() == [3.0, 5.0, 7.0]
    assert seen == [(3.0, 0), (5.0, 1), (7.0, 2)]


def test_tasks_added_later_wait_for_their_lane_and_for_tasks_that_run():
    graph, environment = TaskGraph(), Environment()
    clock = Clock(graph, environment=environment)
    compute, send = lanes(graph, COMPUTE, PIPELINE)
    first = graph.add(compute, 4.0, "first")

    def later():
        yield environment.timeout(1.0)
        second = graph.add(compute, 1.0, "second")
        third = graph.add(send, 1.0, "third", after=[first])
        fourth = graph.add(send, 1.0, "fourth", after=[second, third])
        fifth = graph.add(graph.lane_of(3, DATA), 0.5, "fifth")
        clock.release()
        assert (yield clock.ended(fifth)) == fifth
        assert environment.now == 1.5
        assert (yield clock.ended(fourth)) == fourth
        assert (yield clock.ended(first)) == first  # at once: it ended long ago
        assert environment.now == 6.0

    environment.process(later())
    _, ends = clock.run()
    assert ends.tolist() == [4.0, 5.0, 5.0, 6.0, 1.5]


def test_a_flow_added_later_shares_its_link_with_one_that_runs():
    graph, environment = TaskGraph(), Environment()
    clock = Clock(graph, environment=environment)
    link = graph.add_link(100.0)
    task = graph.add(graph.lane_of(0, DATA), 4.0, "first")
    graph.flows[task] = Flow(100.0, (link,))

    def later():
        yield environment.timeout(2.0)
        second = graph.add(graph.lane_of(1, DATA), 1.0, "second")
        graph.flows[second] = Flow(100.0, (link,))
        other = graph.add(graph.lane_of(2, DATA), 1.0, "other")
        graph.flows[other] = Flow(50.0, (graph.add_link(25.0),))
        clock.release()

    environment.process(later())
    _, ends = clock.run()
    # From 2 s on both have half of the link: the second needs 2 s, then 1 s of the first is left.
    assert ends.tolist() == pytest.approx([5.0, 4.0, 4.0])


def test_a_graph_released_in_pieces_runs_as_one_released_whole():
    def build(graph, count, begin):
        random = np.random.default_rng(3)
        for index in range(count):
            after = [int(other) for other in random.integers(0, index, 2)] if index else []
            lane, seconds = int(random.integers(4)), float(random.random())
            if index >= begin:
                graph.add(graph.lane_of(lane, (COMPUTE, DATA)[index % 2]), seconds, "w", after=after)

    whole, pieces = TaskGraph(), TaskGraph()
    build(whole, 200, 0)
    expected = Clock(whole, Contention(1.1, 1.3)).run()
    clock = Clock(pieces, Contention(1.1, 1.3))
    for count in (50, 120, 200):
        build(pieces, count, len(pieces))
        clock.release()
    starts, ends = clock.run()
    assert starts.tobytes() == expected[0].tobytes()
    assert ends.tobytes() == expected[1].tobytes()


def test_tasks_that_keep_their_speed_run_ahead_of_events_with_the_same_bytes():
    random, graph = np.random.default_rng(5), TaskGraph()
    for index in range(300):
        after = {int(other) for other in random.integers(0, index, 2)} if index else ()
        lane = graph.lane_of(int(random.integers(5)), (COMPUTE, DATA)[index % 2])
        seconds = float(random.random()) if index % 7 else 0.0
        graph.add(lane, seconds, "w", after=sorted(after))
    alone = Clock(graph)
    starts, ends = alone.run()
    assert alone.environment.now == 0.0, "no event was needed"
    events = Clock(graph, environment=Environment()).run()
    assert starts.tobytes() == events[0].tobytes()
    assert ends.tobytes() == events[1].tobytes()


def test_a_started_task_cannot_be_made_to_wait():
    graph = TaskGraph()
    first = graph.add(graph.lane_of(0, COMPUTE), 1.0, "first")
    clock = Clock(graph)
    clock.release()
    graph.edge(graph.add(graph.lane_of(1, COMPUTE), 1.0, "second"), first)
    with pytest.raises(ValueError, match=r"'first'.* has started"):
        clock.release()


def test_a_finished_clock_frees_its_graph_without_the_collector():
    gc.disable()
    try:
        graph = TaskGraph()
        compute, data = lanes(graph, COMPUTE, DATA)
        graph.add(compute, 4.0, "gemm")
        graph.add(data, 1.0, "reduce")
        freed = weakref.ref(graph)
        Clock(graph, Contention(compute=1.25)).run()
        del graph
        assert freed() is None
    finally:
        gc.enable()
