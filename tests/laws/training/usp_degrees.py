"""A product of Ulysses and ring in which one degree is 1 is the other, to the bit."""

from tests.laws.answers import step
from tests.laws.questions import DENSE, Choose, Question, strategy, training

NUMBER = 27
CI = 10


def shared(choose: Choose) -> Question:
    """A step whose sequences context-parallel ranks share, with the algorithm that USP is in its plan."""
    question = training(choose)
    plan, degree = dict(question["plan"]), choose((2, 4, 8))
    others = plan.get("tensor", 1) * plan.get("pipeline", 1)
    work = {**question["workload"], "seq_len": choose((8192, 32768, 131072))}
    plan |= {"context": degree, "context_algorithm": choose(("ring", "ulysses"))}
    plan.pop("expert", None)
    gpus = others * degree * choose((1, 2))
    return {**question, "model": choose(DENSE), "gpus": gpus, "workload": work, "plan": plan}


QUESTIONS = strategy(shared)


def check(question: Question) -> None:
    """Ask with the one algorithm, and with the product of it and one rank of the other."""
    plan = question["plan"]
    heads = 1 if plan["context_algorithm"] == "ring" else plan["context"]
    usp = {**plan, "context_algorithm": "usp", "context_heads": heads}
    one, product = (step({**question, "plan": each}) for each in (plan, usp))
    for name in ("step_time_s", "time_breakdown_s", "memory", "mfu"):
        assert product[name] == one[name], f"{name} differs"
