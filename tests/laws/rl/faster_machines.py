"""Faster links lengthen no step of post-training, another node for rollouts only the way of the weights."""

from pathlib import Path

from simulator.rl.scenario import make_rl
from simulator.rl.step import RlStep, predict_rl
from tests.laws.answers import not_slower
from tests.laws.questions import Question, post_training, spelled, strategy, with_key

NUMBER = 81
QUESTIONS = strategy(post_training)
NODE = 8
LINKS = {
    "NICs x1.25": ("cluster.network.nic_gbps", 1.25),
    "NICs x4": ("cluster.network.nic_gbps", 4.0),
}


def stepped(question: Question) -> RlStep:
    """The step by the closed form."""
    return predict_rl(make_rl(question, "law", Path()), engine=False)


def check(question: Question) -> None:
    """Ask the step again on better machines."""
    base = spelled(question)
    before = stepped(base)
    for what, (path, factor) in LINKS.items():
        faster = stepped(with_key(base, path, lambda rate, by=factor: by * rate))
        not_slower(faster.timing.seconds, before.timing.seconds, what)
    split = question["schedule"].get("split")
    if split:
        wider = {"train": split["train"], "generate": split["generate"] + NODE}
        schedule = {**question["schedule"], "split": wider}
        more = {**base, "gpus": question["gpus"] + NODE, "schedule": schedule}
        larger = stepped(more)
        way = max(larger.phases.weights - before.phases.weights, 0.0)
        not_slower(larger.timing.seconds - way, before.timing.seconds, "a node more for rollouts")
