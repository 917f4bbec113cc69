"""Two groups of one kind of node on its own network take what the cluster of both takes, within 0.1 %."""

from hwmodels.cluster import clusters
from tests.laws.answers import step
from tests.laws.questions import DENSE, Choose, Question, strategy, training

NUMBER = 28
CI = 8
KINDS = "dgx-h100", "dgx-a100-80gb", "aws-p5", "dgx-h200", "dgx-b200", "mi300x-8", "dgx-1v"
NODE = 8
NAMES = "one", "other"


def halves(choose: Choose) -> Question:
    """A step over an even number of nodes, the pipeline or the replicas of which two groups can share."""
    question = training(choose)
    plan, nodes, stages = dict(question["plan"]), choose((2, 4, 8)), choose((1, 2, 4))
    for name in ("expert", "virtual_pipeline"):
        plan.pop(name, None)
    data = nodes * NODE // (plan.get("tensor", 1) * plan.get("context", 1) * stages)
    order = "data-pipeline" if stages > 1 else "pipeline-data"
    plan |= {"pipeline": stages, "rank_order": f"tensor-context-{order}", "zero": choose((0, 1))}
    batch = data * plan["micro_batch"] * choose((1, 2, 8))
    asked = {"model": choose(DENSE), "cluster": choose(KINDS), "gpus": nodes * NODE, "plan": plan}
    return {**asked, "workload": {**question["workload"], "global_batch": batch}}


QUESTIONS = strategy(halves)


def over_groups(question: Question, *kinds: str, names: tuple[str, ...] = NAMES) -> Question:
    """The question over two groups of nodes of these kinds, joined by the network of its cluster."""
    plan, nodes = question["plan"], question["gpus"] // NODE
    groups = [
        {"name": name, "cluster": kind, "nodes": nodes // 2} for name, kind in zip(names, kinds, strict=True)
    ]
    ranks = plan.get("tensor", 1) * plan.get("context", 1) * plan["pipeline"]
    stages = plan["pipeline"] > 1
    share = plan["pipeline"] // 2 if stages else question["gpus"] // ranks // 2
    network = clusters.get(question["cluster"]).network
    assert network is not None
    join = network.model_dump()
    placement = {"stages" if stages else "replicas": dict.fromkeys(NAMES, share)}
    return {**question, "cluster": {"name": "two", "groups": groups, "join": join}, "placement": placement}


def check(question: Question) -> None:
    """Ask the cluster, and two groups of half of its nodes."""
    kind = question["cluster"]
    whole, parts = step(question)["step_time_s"], step(over_groups(question, kind, kind))["step_time_s"]
    assert abs(parts - whole) <= 1e-3 * whole, f"two groups take {parts:.6g} s, their cluster {whole:.6g} s"
