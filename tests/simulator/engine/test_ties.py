"""Tasks of equal end are reported in the order in which their ends were scheduled."""

from simpy import Environment

from simulator.engine.clock import Clock
from simulator.engine.graph import Stream, TaskGraph

COMPUTE = Stream("compute", "compute")


def test_equal_ends_come_in_the_order_of_scheduling_and_tasks_without_duration_at_once():
    graph = TaskGraph()
    lanes = [graph.lane_of(rank, COMPUTE) for rank in range(3)]
    late = graph.add(lanes[2], 1.0, "started at 1")
    tasks = [graph.add(lanes[rank], 2.0, "started at 0") for rank in (1, 0)]
    after = graph.add(lanes[2], 1.0, "ends at 2", after=[late])
    nothing = graph.add(graph.lane_of(4, COMPUTE), 0.0, "no time", after=[tasks[1]])
    clock, seen = Clock(graph, environment=Environment()), []
    for task in (nothing, after, *reversed(tasks)):
        clock.ended(task).callbacks.append(lambda _, task=task: seen.append(task))
    _, ends = clock.run()
    assert ends[[*tasks, after, nothing]].tolist() == [2.0] * 4
    assert seen == [*tasks, nothing, after]
