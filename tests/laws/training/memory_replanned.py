"""With half as much device memory again, the fastest plan is not slower."""

import math

import meshwright as mw
from core.errors import InfeasibleError
from tests.laws.answers import not_slower
from tests.laws.questions import Question, search, spelled, strategy, with_key

NUMBER = 2
QUESTIONS = strategy(search)
SEARCHES = True


def fastest_s(question: Question) -> float:
    """Step time of the fastest plan; infinite where none fits."""
    return min((plan.step_time_s for plan in mw.plan(question, raw=True).plans), default=math.inf)


def check(question: Question) -> None:
    """Search on both devices; measured plans go before faster ones, so all are looked at."""
    base = spelled(question)
    before = fastest_s(base)
    if math.isinf(before):
        raise InfeasibleError("no plan fits")
    after = fastest_s(with_key(base, "cluster.device.memory_bytes", lambda size: int(1.5 * size)))
    not_slower(after, before, "1.5 times the memory")
