"""A quarter more multiprocessors, with as much more peak, make no step of decodes or of prompts longer."""

from tests.laws.answers import not_slower
from tests.laws.questions import Question, served, spelled, strategy, with_key
from tests.laws.serving.faster_memory import steps

NUMBER = 49
QUESTIONS = strategy(served)
MORE = 1.25


def check(question: Question) -> None:
    """Compare steps of several batches; memory keeps its bandwidth."""
    base = spelled(question)
    before, after = steps(base), steps(with_key(base, "cluster.device", _with_more))
    for name, seconds in before.items():
        not_slower(after[name], seconds, f"multiprocessors x{MORE}, {name}")


def _with_more(device: Question) -> Question:
    """A device with more multiprocessors of the same kind."""
    number = round(MORE * device["multiprocessors"])
    gain = number / device["multiprocessors"]
    peaks = {
        name: {number_format: gain * rate for number_format, rate in device[name].items()}
        for name in ("peak_flops", "settled_flops")
        if name in device
    }
    return {**device, "multiprocessors": number, **peaks}
