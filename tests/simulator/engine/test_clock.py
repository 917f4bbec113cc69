"""The clock: order, contention, flows, ends that hand calculation gives."""

import numpy as np
import pytest

from hwmodels.errors import InputError
from simulator.engine.clock import Clock, Contention
from simulator.engine.graph import COMPUTE, DATA, FROM_HOST, NO_LANE, PIPELINE, TENSOR, Flow, TaskGraph


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
    gate = graph.add(NO_LANE, 0.0, "gate", after=tasks)
    last = graph.add(graph.lane_of(1, COMPUTE), 1.0, "elsewhere", after=[gate])
    starts, ends = Clock(graph).run()
    assert (starts[gate], ends[gate], starts[last]) == (3.0, 3.0, 3.0)


def test_a_circle_is_a_deadlock_with_a_name():
    graph = TaskGraph()
    a = graph.add(graph.lane_of(0, COMPUTE), 1.0, "forward", 3)
    b = graph.add(graph.lane_of(1, COMPUTE), 1.0, "backward", 3, after=[a])
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


def test_flows_share_a_link_and_speed_up_when_one_leaves():
    graph = TaskGraph()
    small = graph.add(graph.lane_of(0, PIPELINE), 0.5, "small")
    large = graph.add(graph.lane_of(1, DATA), 0.0, "large")
    graph.flows[small] = Flow(100.0, (0,))
    graph.flows[large] = Flow(400.0, (0, 1))
    _, ends = Clock(graph, capacity=np.array([100.0, 1000.0])).run()
    # 0.5 s alone: 50 bytes; then both at 50 B/s until the small one's 100 bytes are through at 2.5 s.
    assert ends[small] == pytest.approx(2.5)
    assert ends[large] == pytest.approx(2.5 + 2.5)


def test_a_link_moves_its_capacity_whatever_the_number_of_flows():
    graph = TaskGraph()
    for rank in range(7):
        task = graph.add(graph.lane_of(rank, DATA), 0.0, "flow")
        graph.flows[task] = Flow(10.0 * (rank + 1), (0,))
    _, ends = Clock(graph, capacity=np.array([28.0])).run()
    assert ends.max() == pytest.approx(10.0)
    assert np.all(np.diff(ends) > 0)


def test_a_flow_beside_computation_is_slowed_too():
    graph = TaskGraph()
    gemm = graph.add(graph.lane_of(0, COMPUTE), 100.0, "gemm")
    flow = graph.add(graph.lane_of(0, DATA), 0.0, "flow")
    graph.flows[flow] = Flow(100.0, (0,))
    _, ends = Clock(graph, Contention(1.0, 1.25), np.array([50.0])).run()
    assert ends[flow] == pytest.approx(2.5)
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
        return Clock(graph, Contention(1.1, 1.3), np.array([1.0, 2.0, 3.0])).run()

    (starts, ends), (again_starts, again_ends) = once(), once()
    assert starts.tobytes() == again_starts.tobytes()
    assert ends.tobytes() == again_ends.tobytes()
