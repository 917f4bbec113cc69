"""A network that is oversubscribed twice as much makes no step faster."""

from tests.laws.answers import not_slower, step
from tests.laws.questions import Question, spelled, strategy, training, with_key

NUMBER = 5
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Double the ratio of the network between nodes."""
    base = spelled(question)
    ratio = base["cluster"]["network"].get("oversubscription", 1)
    worse = with_key(base, "cluster.network", lambda network: {**network, "oversubscription": 2 * ratio})
    not_slower(step(base)["step_time_s"], step(worse)["step_time_s"], "oversubscription halved")
