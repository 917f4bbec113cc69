"""With half as much device memory again, the fastest plan is not slower."""

import meshwright as mw
from tests.laws.answers import not_slower
from tests.laws.questions import Question, search, spelled, strategy, with_key

NUMBER = 2
QUESTIONS = strategy(search)
SEARCHES = True


def check(question: Question) -> None:
    """Search on both devices; measured plans go before faster ones, so all are looked at."""
    base = spelled(question)
    more = with_key(base, "cluster.device.memory_bytes", lambda size: int(1.5 * size))
    before, after = (min(plan.step_time_s for plan in mw.plan(data, raw=True).plans) for data in (base, more))
    not_slower(after, before, "1.5 times the memory")
