"""Device memory that is 1.3 times as fast makes no step slower."""

from tests.laws.answers import not_slower, step
from tests.laws.questions import Question, spelled, strategy, training, with_key

NUMBER = 4
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Raise the bandwidth of the device's memory alone."""
    base = spelled(question)
    faster = with_key(base, "cluster.device.memory_bandwidth", lambda rate: 1.3 * rate)
    not_slower(step(faster)["step_time_s"], step(base)["step_time_s"], "memory bandwidth x1.3")
