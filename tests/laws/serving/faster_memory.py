"""No step of decodes, and no step of prompts, takes longer on device memory that is 1.3 times as fast."""

# A step of both may: engines' measured factor on the time that prompts add to a decode step counts more of
# the step as theirs where the decodes alone are faster (0.02 % in Llama 3.1 70B on a B200).

from pathlib import Path

from simulator.serving.scenario import make_serving
from tests.laws.answers import not_slower
from tests.laws.questions import Question, served, spelled, strategy, with_key

NUMBER = 48
QUESTIONS = strategy(served)
DECODES = 1, 2, 7, 32, 100
PROMPTS = ((100, 0),), ((700, 0), (700, 0)), ((512, 4096),)
"""Prompt chunks of a step: tokens, and tokens cached before them."""
CONTEXT = 1500


def steps(question: Question) -> dict[str, float]:
    """Seconds of several batches, by their names."""
    table = make_serving(question, "law", Path()).pools[0].costs.steps
    decodes = {f"{count} decodes": table.step((), count, count * CONTEXT) for count in DECODES}
    return decodes | {f"prompts {chunks}": table.step(chunks, 0, 0) for chunks in PROMPTS}


def check(question: Question) -> None:
    """Compare steps of several batches."""
    base = spelled(question)
    before = steps(base)
    after = steps(with_key(base, "cluster.device.memory_bandwidth", lambda rate: 1.3 * rate))
    for name, seconds in before.items():
        not_slower(after[name], seconds, f"memory bandwidth x1.3, {name}")
