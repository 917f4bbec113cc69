"""No step of post-training takes longer with faster links, or with another node for its rollouts."""

from pathlib import Path

from simulator.rl.scenario import make_rl
from simulator.rl.step import predict_rl
from tests.laws.answers import not_slower
from tests.laws.questions import Question, post_training, spelled, strategy, with_key

NUMBER = 81
QUESTIONS = strategy(post_training)
NODE = 8
LINKS = {
    "NICs x1.25": ("cluster.network.nic_gbps", 1.25),
    "NICs x4": ("cluster.network.nic_gbps", 4.0),
}


def seconds(question: Question) -> float:
    """Of the step, by the closed form."""
    return predict_rl(make_rl(question, "law", Path()), engine=False).timing.seconds


def check(question: Question) -> None:
    """Ask the step again on better machines."""
    base = spelled(question)
    before = seconds(base)
    for what, (path, factor) in LINKS.items():
        not_slower(seconds(with_key(base, path, lambda rate, by=factor: by * rate)), before, what)
    split = question["schedule"].get("split")
    if split:
        wider = {"train": split["train"], "generate": split["generate"] + NODE}
        schedule = {**question["schedule"], "split": wider}
        more = {**base, "gpus": question["gpus"] + NODE, "schedule": schedule}
        not_slower(seconds(more), before, "a node more for rollouts")
