"""KV blocks, slots and tokens of a replica are conserved at every step, and its time never goes back."""

from simulator.serving.replica.guards import guarding
from tests.laws.answers import served_run
from tests.laws.questions import Choose, Question, served, strategy, with_key

NUMBER = 40


def with_few_blocks(choose: Choose) -> Question:
    """A served scenario whose replicas may run out of KV blocks."""
    options = {
        "kv_blocks": choose((600, 1000, 20_000)),
        "preemption": choose(("recompute", "swap", "none")),
        "asynchronous": choose((True, False)),
    }
    scenario = with_key(served(choose), "deployment.options", lambda stated: {**stated, **options})
    return with_key(scenario, "workload.output", lambda tokens: choose((tokens, 300)))


QUESTIONS = strategy(with_few_blocks)


def check(question: Question) -> None:
    """Run it under the guards, which look at every step."""
    with guarding():
        run = served_run(question)
    for member in run.fleet.members:
        for batcher in member.replica.batchers:
            assert batcher.kv.free == batcher.kv.total, "KV blocks are held after the last request"
