"""Guidance on two devices leaves each the kernels of a request without guidance, to the bit."""

from tests.laws.other_kinds import IMAGES, diffused, request
from tests.laws.questions import Choose, Question, strategy, with_key

NUMBER = 92


def guided(choose: Choose) -> Question:
    """A batch of a model that is called with the prompt and without it."""
    question = diffused(choose)
    if question["model"] == "flux.1-dev":
        question["model"] = IMAGES[0]
    return with_key(question, "workload", lambda work: {**work, "guidance": True})


QUESTIONS = strategy(guided)


def check(question: Question) -> None:
    """Compare kernels, launches and weights that arrive of a step."""
    halved = request(with_key(question, "layout", lambda layout: {**layout, "guidance": 2})).times
    alone = request(with_key(question, "workload.guidance", lambda _: False)).times
    for part in ("device_s", "host_s", "stream_s"):
        assert getattr(halved, part) == getattr(alone, part), part
