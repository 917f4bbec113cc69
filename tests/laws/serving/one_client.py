"""A lone client is not served later by faster memory, or by faster links between the devices of a replica."""

from tests.laws.answers import not_slower, served_run
from tests.laws.questions import Choose, Question, served, spelled, strategy, with_key

NUMBER = 33


def lone(choose: Choose) -> Question:
    """A scenario whose one client waits for each answer."""
    scenario = served(choose)
    alone = {"kind": "closed", "concurrency": 1}
    return with_key(
        with_key(scenario, "workload.arrivals", lambda _: alone), "workload.requests", lambda _: 5
    )


QUESTIONS = strategy(lone)


def check(question: Question) -> None:
    """Compare the end of the last request over both changes."""

    def last_s(data: Question) -> float:
        return float(served_run(data).records.columns()["last_s"].max())

    def doubled(levels: list[dict]) -> list[dict]:
        return [{**level, "bandwidth": 2 * level["bandwidth"]} for level in levels]

    base = spelled(question)
    before = last_s(base)
    not_slower(last_s(with_key(base, "cluster.levels", doubled)), before, "links x2")
    faster = with_key(base, "cluster.device.memory_bandwidth", lambda rate: 1.3 * rate)
    not_slower(last_s(faster), before, "memory bandwidth x1.3")
