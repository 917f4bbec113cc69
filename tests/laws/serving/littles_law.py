"""Little's law holds in a closed loop."""

import numpy as np

from core.errors import InfeasibleError
from tests.laws.answers import ROUNDING, served_run
from tests.laws.questions import Choose, Question, served, strategy, with_key

NUMBER = 44


def closed(choose: Choose) -> Question:
    """A scenario whose clients each wait for an answer before they ask again."""
    clients = {"kind": "closed", "concurrency": choose((4, 1, 2, 16, 32))}
    return with_key(served(choose), "workload.arrivals", lambda _: clients)


QUESTIONS = strategy(closed)


def check(question: Question) -> None:
    """Until the last request is sent, the time that requests spend adds up to that of all clients."""
    run = served_run(question)
    clients, asked = question["workload"]["arrivals"]["concurrency"], question["workload"]["requests"]
    if asked <= clients or run.fleet.refused:
        raise InfeasibleError("no client asks twice, or a request is refused")
    columns = run.records.columns()
    starts = columns["arrival_s"]
    first, last = float(starts.min()), float(starts.max())
    spent = float((np.minimum(columns["last_s"], last) - starts).sum())
    whole = clients * (last - first)
    assert abs(spent - whole) <= ROUNDING * whole, (
        f"requests spend {spent:.9g} s in the system, {clients} clients {whole:.9g} s"
    )
