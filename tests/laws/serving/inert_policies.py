"""A policy that never acts changes nothing."""

from tests.laws.answers import served_run
from tests.laws.questions import Choose, Question, served, strategy

NUMBER = 43
NEVER_S = 1e6
"""After the last request of any question."""
BETWEEN = {
    "drain without drains": {"migrate": {"kind": "drain"}},
    "llumnix without a threshold": {"migrate": {"kind": "llumnix", "threshold": -1e6}},
    "lending without a lack": {"migrate": {"kind": "lend"}},
}
"""Policies between two and more replicas."""
INERT = (
    *BETWEEN,
    "failures after the end",
    "drains after the end",
    "a resize to the same ranks",
    "a scaler that keeps the replicas",
)
SHAPES = {"plain": {}, "stages": {"pipeline": 2}, "ranks of experts": {"tensor": 1, "data": 2, "expert": 2}}
EXPERTS = "qwen3-30b-a3b"


def with_a_policy(choose: Choose) -> Question:
    """A served scenario, and the name of a policy that has nothing to do."""
    scenario, name = served(choose), choose(INERT)
    replicas = scenario["deployment"]["replicas"]
    if name in BETWEEN:
        replicas = max(replicas, 2)
    shape = choose(tuple(SHAPES))
    if name == "a resize to the same ranks":
        shape = "ranks of experts"
    elif name == "lending without a lack":
        shape = "plain"
    if shape == "ranks of experts":
        scenario["model"] = EXPERTS
    deployment = {**scenario["deployment"], "replicas": replicas, **SHAPES[shape]}
    return {**scenario, "deployment": deployment, "policy": name}


QUESTIONS = strategy(with_a_policy)


def check(question: Question) -> None:
    """Compare the bytes of all requests with and without the policy."""
    plain = {key: value for key, value in question.items() if key != "policy"}
    name, deployment = question["policy"], plain["deployment"]
    replicas = deployment["replicas"]
    policies = {
        **BETWEEN,
        "failures after the end": {"failures": {"at": [{"time": NEVER_S, "replica": 0}]}},
        "drains after the end": {"drains": [{"time": NEVER_S, "replica": 0, "until": 2 * NEVER_S}]},
        "a resize to the same ranks": {"resizes": [{"time": 0.5, "data": 2}]},
        "a scaler that keeps the replicas": {
            "scaler": "reactive",
            "scaler_options": {"least": replicas, "most": replicas, "target": 6},
        },
    }
    without, beside = (
        {column: values.tobytes() for column, values in served_run(data).records.columns().items()}
        for data in (plain, {**plain, "deployment": {**deployment, **policies[name]}})
    )
    moved = sorted(column for column in without if without[column] != beside[column])
    assert not moved, f"{name} moves {', '.join(moved)}"
