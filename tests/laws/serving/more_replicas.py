"""Twice the replicas do not serve a stream of requests later, behind a router that looks at all."""

from tests.laws.answers import not_slower, served_run
from tests.laws.questions import Question, served, strategy, with_key

NUMBER = 32
QUESTIONS = strategy(served)
TOLERANCE = 0.05
"""Batches of other sizes end a stream's last request a little later, now and then."""


def check(question: Question) -> None:
    """Compare the end of the last request.

    Power of two looks at two replicas: of four with four clients both may be busy while others are idle.
    """
    question = with_key(
        question, "deployment.router", lambda name: "least-loaded" if name == "power-of-two" else name
    )
    more = with_key(question, "deployment.replicas", lambda count: 2 * count)
    before, after = (float(served_run(data).records.columns()["last_s"].max()) for data in (question, more))
    not_slower(after, before * (1 + TOLERANCE), "twice the replicas")
