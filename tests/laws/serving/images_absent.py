"""Encoder pools and towers change no request without images, to the bit."""

from tests.laws.answers import served_run
from tests.laws.questions import Choose, Question, served, strategy, with_key

NUMBER = 47
NAMED = {"qwen3-vl-8b": "qwen3-8b"}
"""Models with a tower, and the same decoders without one."""


def without_images(choose: Choose) -> Question:
    """A scenario of a model with a tower, in one pool or in two."""
    scenario = {**served(choose), "model": choose(tuple(NAMED))}
    if choose((False, True)):
        apart = [{"role": "prefill"}, {"role": "decode"}]
        return {**scenario, "deployment": {**scenario["deployment"], "pools": apart}}
    return scenario


QUESTIONS = strategy(without_images)


def check(question: Question) -> None:
    """Compare the bytes of all requests with those of the decoder alone, or beside a pool of encoders."""
    pools = question["deployment"].get("pools")
    if pools:
        other = with_key(question, "deployment.pools", lambda stated: [*stated, {"role": "encoder"}])
    else:
        other = {**question, "model": NAMED[question["model"]]}
    without, beside = (
        {name: column.tobytes() for name, column in served_run(data).records.columns().items()}
        for data in (other, question)
    )
    moved = sorted(name for name in without if without[name] != beside[name])
    assert not moved, f"{', '.join(moved)} differ with {'a pool of encoders' if pools else 'a tower'}"
