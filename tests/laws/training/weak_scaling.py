"""Twice the nodes for twice the batch make no step faster where ranks keep all state, on switched links."""

# What may get faster: shards of state and Megatron's buckets change with the ranks (1 M parameters a rank);
# a mesh gives more ranks more links; a ring within one node closes through its host, of two over NICs; a
# reduction in switches sends fewer bytes a rank the more ranks there are.

from hwmodels.cluster import clusters
from tests.laws.answers import not_slower, step
from tests.laws.questions import Choose, Question, strategy, training

NUMBER = 17
SWITCHED = "dgx-h100", "dgx-a100-80gb", "aws-p5", "dgx-h200", "dgx-b200", "aws-p4d", "gcp-a3-mega"
BUCKETS = "torch-eager"
"""A framework whose buckets do not grow with the group."""


def scaled(choose: Choose) -> Question:
    """A step whose ranks keep all state, on whole nodes."""
    question = training(choose)
    cluster = choose(SWITCHED)
    gpus = max(question["gpus"], clusters.get(cluster).devices_per_node)
    return {
        **question,
        "cluster": cluster,
        "gpus": gpus,
        "framework": BUCKETS,
        "plan": {**question["plan"], "zero": 0},
    }


QUESTIONS = strategy(scaled)


def check(question: Question) -> None:
    """Double the nodes and the batch."""
    batch = question["workload"]["global_batch"]
    doubled = {
        **question,
        "gpus": 2 * question["gpus"],
        "workload": {**question["workload"], "global_batch": 2 * batch},
    }
    not_slower(step(question)["step_time_s"], step(doubled)["step_time_s"], "half the nodes and the batch")
