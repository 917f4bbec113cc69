"""Order of events of equal time: the clock first, then arrivals, then ends of steps by replica."""

from pathlib import Path

from simulator.serving.fleet.fleet import Fleet
from simulator.serving.scenario import make_serving
from simulator.serving.steady.kinds import TABLES
from simulator.serving.workload.request import Request


def fleet(replicas=2, **workload) -> Fleet:
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 8,
            "arrivals": {"kind": "closed", "concurrency": 2},
            "input": 100,
            "output": 10,
            **workload,
        },
        "deployment": {"replicas": replicas, "options": {"max_sequences": 16, "max_context": 1024}},
    }
    return Fleet(make_serving(data, "test", Path(), TABLES))


def test_events_on_the_clock_run_in_the_order_of_scheduling():
    run, seen = fleet(), []
    for name in ("first", "second", "third"):
        run._later(1.0, lambda _, name=name: seen.append(name))
    run.clock.run(until=2.0)
    assert seen == ["first", "second", "third"]


def test_equal_replicas_end_their_steps_by_number():
    run = fleet()
    run.run()
    columns = run.records.columns()
    pairs = columns["last_s"].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    ended = [record.replica for record in sorted(run.records, key=lambda one: one.serial)]
    assert ended == [0, 1] * 4


def test_a_request_that_arrives_as_a_step_ends_joins_the_next_step():
    run = fleet(replicas=1)
    replica = run.members[0].replica
    run.send(Request(0, 0.0, 100, 10))
    replica.advance(run.members[0].ingest_s + 1e-6)
    end = replica.next_s
    replica.advance(end)
    assert replica.next_s == end
    run.send(Request(1, end - run.members[0].ingest_s, 100, 10))
    replica.turn()
    assert replica.running == 2
