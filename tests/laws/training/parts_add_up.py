"""The parts of a step are at least 0 and add up to the step; those of memory add up to the peak."""

from tests.laws.answers import ROUNDING, step
from tests.laws.questions import Question, strategy, training

NUMBER = 9
QUESTIONS = strategy(training)


def check(question: Question) -> None:
    """Add up the parts of one answer."""
    answer = step(question)
    parts, whole = answer["time_breakdown_s"], answer["step_time_s"]
    least = min(parts, key=parts.__getitem__)
    assert parts[least] >= -ROUNDING * whole, f"{least} takes {parts[least]:.6g} s"
    assert abs(sum(parts.values()) - whole) <= ROUNDING * whole, (
        f"parts take {sum(parts.values())} of {whole} s"
    )
