"""Twice the device memory leaves the time of a plan as it was, and makes no plan take less memory."""

from tests.laws.answers import step
from tests.laws.questions import Question, spelled, strategy, training, with_key

NUMBER = 1
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Compare times and peaks; copies of updates that are made only where there is room add to the peak."""
    base = spelled(question)
    before, after = step(base), step(with_key(base, "cluster.device.memory_bytes", lambda size: 2 * size))
    assert before["time_breakdown_s"] == after["time_breakdown_s"], "memory moves the time"
    peaks = [answer["memory"]["peak_bytes"] for answer in (before, after)]
    assert peaks[1] >= peaks[0], f"a peak of {peaks[0]:.6g} bytes becomes {peaks[1]:.6g}"
