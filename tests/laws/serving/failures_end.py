"""Requests that replica failures lose end or are given up."""

from tests.laws.answers import served_run
from tests.laws.questions import Choose, Question, served, strategy

NUMBER = 45


def with_failures(choose: Choose) -> Question:
    """A served scenario whose replicas fail."""
    scenario = served(choose)
    replicas = range(scenario["deployment"]["replicas"])
    times = [choose((0.5, 0.0, 0.1, 2.0, 7.0)) for _ in range(choose((1, 2, 5)))]
    failures = {
        "at": [{"time": time, "replica": choose(replicas)} for time in times],
        "restore": choose((0.3, 0.0, 3.0)),
        "retries": choose((1, 0, 4)),
        "retry_after": choose((0.2, 0.0)),
    }
    return {**scenario, "deployment": {**scenario["deployment"], "failures": failures}}


QUESTIONS = strategy(with_failures)


def check(question: Question) -> None:
    """Count the requests of a run, and what replicas hold after it."""
    run = served_run(question)
    columns, fleet, asked = run.records.columns(), run.fleet, question["workload"]["requests"]
    ended = len(run.records) + fleet.refused + fleet.failed
    assert ended == asked, f"{ended} of {asked} requests end or are given up"
    retries = question["deployment"]["failures"]["retries"]
    assert (columns["retries"] <= retries).all(), f"a request is sent again more than {retries} times"
    assert (columns["first_s"] <= columns["last_s"]).all(), "a last token precedes the first"
    assert (columns["arrival_s"] <= columns["first_s"]).all(), "a first token precedes its request"
    for member in fleet.members:
        assert member.replica.load == 0, "a replica has work after the last request"
        for batcher in member.replica.batchers:
            assert batcher.kv.free == batcher.kv.total, "KV blocks are held after the last request"
