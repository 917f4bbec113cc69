"""A quarter more multiprocessors, with as much more peak, make no step of decodes or of prompts longer."""

from hwmodels.device import devices
from tests.laws.answers import not_slower
from tests.laws.questions import Choose, Question, served, spelled, strategy, with_key
from tests.laws.serving.faster_memory import steps

NUMBER = 49
MORE = 1.25


def of_any_device(choose: Choose) -> Question:
    """A served scenario and a device of the catalogue in the place of its cluster's."""
    return {**served(choose), "device": choose(devices.names())}


QUESTIONS = strategy(of_any_device)


def check(question: Question) -> None:
    """Compare steps of several batches; memory keeps its bandwidth."""
    scenario = {key: value for key, value in question.items() if key != "device"}
    device = dict(devices.definition(question["device"]))
    base = with_key(spelled(scenario), "cluster.device", lambda _: device)
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
