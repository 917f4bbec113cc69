"""Twice the replicas serve no stream of requests later; as many as clients serve no client later."""

from tests.laws.answers import not_slower, served_run
from tests.laws.questions import Question, served, strategy, with_key

NUMBER = 32
QUESTIONS = strategy(served)
TOLERANCE = 0.05
"""Batches of other sizes end a stream's last request a little later, now and then."""


def check(question: Question) -> None:
    """Compare the end of the last request.

    Clients who wait for answers may be served later by twice the replicas. Qwen3-30B-A3B on MI300X under
    TensorRT-LLM (lognormal prompts, 20 tokens of output): four clients of one replica ask at once, and their
    prompts share a step whose host time is 63 ms whatever it holds. The answers of two replicas end 0.1 ms
    apart, the router mixes their clients, each prompt gets a step of its own, which the other client's output
    waits for as well: 4.04 s become 4.62 s. A replica for each client leaves no request to wait for another.
    """
    arrivals = question["workload"]["arrivals"]
    more = with_key(
        question, "deployment.replicas", lambda count: max(2 * count, arrivals.get("concurrency", 0))
    )
    if arrivals["kind"] == "closed":
        more = with_key(more, "deployment.router", lambda _: "least-loaded")
    before, after = (float(served_run(data).records.columns()["last_s"].max()) for data in (question, more))
    not_slower(after, before * (1 + TOLERANCE), "more replicas")
