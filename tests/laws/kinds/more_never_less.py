"""More steps, prompts, frames or pixels of a batch by diffusion never take less time."""

from tests.laws.answers import not_slower
from tests.laws.other_kinds import VIDEOS, diffused, seconds
from tests.laws.questions import Choose, Question, strategy, with_key

NUMBER = 90


def grown(choose: Choose) -> Question:
    """A batch, and what grows."""
    question = diffused(choose)
    keys = ("steps", "batch", "height", "width", *(("frames",) if question["model"] in VIDEOS else ()))
    return {**question, "grows": choose(keys)}


QUESTIONS = strategy(grown)


def check(question: Question) -> None:
    """Double it; frames by whole latent frames."""
    key, base = question["grows"], {name: value for name, value in question.items() if name != "grows"}
    more = with_key(base, f"workload.{key}", lambda value: 2 * value - (key == "frames"))
    not_slower(seconds(base), seconds(more), f"half of {key}")
