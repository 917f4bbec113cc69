"""Links inside a node that are twice as fast make no step slower."""

from tests.laws.answers import not_slower, step
from tests.laws.questions import Question, spelled, strategy, training, with_key

NUMBER = 3
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Double the bandwidth of every level."""

    def doubled(levels: list[dict]) -> list[dict]:
        return [{**level, "bandwidth": 2 * level["bandwidth"]} for level in levels]

    base = spelled(question)
    faster = with_key(base, "cluster.levels", doubled)
    not_slower(step(faster)["step_time_s"], step(base)["step_time_s"], "links inside the node x2")
