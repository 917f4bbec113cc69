"""Random questions: models x clusters x workloads x plans, and the same of serving.

A question is a mapping that a YAML file can hold: keys of a scenario, or arguments of ``plan serve``
(`served_search`). Every generator draws through ``choose``, which takes options with the simplest first:
hypothesis chooses and shrinks through it (`strategy`), and the fuzz passes ``random.choice`` for valid inputs
to break.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from hwmodels.cluster import clusters
from hwmodels.device import devices
from simulator.frameworks import frameworks

OptionT = TypeVar("OptionT")
Question = dict[str, Any]
Choose = Callable[[Sequence[Any]], Any]
"""Returns one of several options; the first is the simplest."""

DENSE = (
    "llama3.2-1b",
    "gpt2-xl",
    "llama3.1-8b",
    "gemma2-9b",
    "mistral-7b",
    "qwen2.5-7b",
    "llama2-13b",
    "llama3.1-70b",
)
SPARSE = ("qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "deepseek-v3")
HYBRID = ("nemotron-h-8b", "qwen3-next-80b-a3b")
MODELS = (*DENSE, *SPARSE, *HYBRID)
CLUSTERS = (
    *("dgx-h100", "dgx-a100-80gb", "aws-p5", "dgx-h200", "dgx-b200", "dgx-b300", "gb200-nvl72", "mi300x-8"),
    *("aws-p4d", "l40s-8", "dgx-1v", "frontier", "gcp-a3-mega", "mi355x-8", "h100-pcie-8"),
)
FRAMEWORKS = ("megatron-core", "torch-fsdp", "torchtitan", "deepspeed-zero3")
"""Beside the default of the device."""

SERVED_MODELS = ("llama3.1-8b", "llama2-13b", "qwen3-30b-a3b", "gpt-oss-20b", "llama3.1-70b", "qwen2.5-7b")
SERVED_CLUSTERS = ("dgx-h100", "dgx-a100-80gb", "dgx-h200", "dgx-b200", "mi300x-8", "l40s-8")
ENGINES = ("vllm-0.19", "vllm-0.6", "vllm-0.11", "sglang-0.5.12", "tensorrt-llm-1.2")


def training(choose: Choose) -> Question:
    """A training step: a scenario with a plan whose ranks, micro batches and experts divide."""
    model, framework = choose(MODELS), choose((None, None, *FRAMEWORKS))
    offers = {} if framework is None else frameworks.get(framework).offers

    def offered(name: str, options: Sequence[int]) -> int:
        return choose([option for option in options if option in offers.get(name, options)])

    degrees = {
        "tensor": offered("tensor", (1, 2, 4, 8)),
        "pipeline": offered("pipeline", (1, 2, 4)),
        "context": choose((1, 1, 1, 2)),
    }
    ranks = degrees["tensor"] * degrees["pipeline"] * degrees["context"]
    gpus = choose([size for size in (8, 16, 32, 64, 128, 256) if size >= ranks])
    data, micro_batch = gpus // ranks, choose((1, 2, 4))
    plan: Question = {key: degree for key, degree in degrees.items() if degree > 1}
    plan["micro_batch"] = micro_batch
    if model in SPARSE and data > 1 and "expert" not in offers:
        plan["expert"] = choose([degree for degree in (1, 2, 4, 8) if data % degree == 0])
    plan["zero"] = offered(
        "zero", (0, 1) if degrees["pipeline"] > 1 and "zero" not in offers else (0, 1, 2, 3)
    )
    plan["recompute"] = choose(("none", "selective", "full"))
    if degrees["tensor"] > 1:
        plan["sequence_parallel"] = choose((False, True))
    if degrees["pipeline"] > 1:
        plan["virtual_pipeline"] = choose((1, 1, 2))
    scenario: Question = {
        "model": model,
        "cluster": choose(CLUSTERS),
        "gpus": gpus,
        "workload": {
            "seq_len": choose((1024, 2048, 4096, 8192)),
            "global_batch": data * micro_batch * choose((1, 2, 4, 8)) * degrees["pipeline"],
            "precision": choose(("bf16", "bf16", "fp8")),
        },
        "plan": plan,
    }
    return scenario if framework is None else {**scenario, "framework": framework}


def search(choose: Choose) -> Question:
    """A search of training plans: a step's scenario without its plan."""
    scenario = {key: value for key, value in training(choose).items() if key != "plan"}
    return {**scenario, "search": {"top": 5}}


def served(choose: Choose) -> Question:
    """A serving scenario of a few requests."""
    rate = choose((1, 4, 16, 64))
    arrivals = choose(
        (
            {"kind": "poisson", "rate": rate},
            {"kind": "uniform", "rate": rate},
            {"kind": "gamma", "rate": rate, "cv": 2},
            {"kind": "closed", "concurrency": choose((1, 4, 16))},
            {"kind": "burst"},
        )
    )
    return {
        "model": choose(SERVED_MODELS),
        "cluster": choose(SERVED_CLUSTERS),
        "workload": {
            "kind": "serving",
            "requests": choose((20, 40, 80)),
            "arrivals": arrivals,
            "input": choose(
                (100, 700, 2000, {"kind": "lognormal", "median": 300, "sigma": 0.8, "most": 2000})
            ),
            "output": choose((20, 1, 100, {"kind": "uniform", "low": 4, "high": 40})),
            "slo": {"ttft": 1, "tpot": 0.05},
        },
        "deployment": {
            "engine": choose(ENGINES),
            "tensor": choose((1, 2, 4, 8)),
            "replicas": choose((1, 2, 3)),
            "router": choose(("round-robin", "least-loaded", "power-of-two")),
            "options": {"max_context": 8192, "max_sequences": choose((32, 8, 256))},
        },
        "seed": choose(range(5)),
    }


def served_search(choose: Choose) -> Question:
    """A search of deployments, as arguments of ``plan serve``."""
    return {
        "model": choose(SERVED_MODELS),
        "cluster": choose(SERVED_CLUSTERS),
        "gpus": choose((1, 2, 4, 8)),
        "isl": choose((100, 700, 2000)),
        "osl": choose((20, 100, 300)),
        "ttft": choose((1.0, 0.5, 2.0)),
        "tpot": choose((0.05, 0.02, 0.1)),
        "engine": choose(ENGINES),
    }


def weeks(choose: Choose) -> Question:
    """A run of weeks: a small step, with any faults, recovery, checkpoints and elastic ways."""
    hours = choose((90 * 24, 24, 1, 0.01, 10_000))
    run: Question = {"days": choose((3, 1, 24, 0.01, 400)), "replications": choose((2, 1))}
    faults = choose(
        (
            None,
            {"kind": "exponential", "mtbf": f"{hours} h", "of": choose(("job", "node", "device"))},
            {"kind": "weibull", "mtbf": f"{hours} h", "of": "job", "shape": 0.7},
            {"kind": "silent", "mtbf": f"{hours} h", "of": "job"},
            "llama3-2024",
        )
    )
    every = choose(("auto", "30 min", "1 steps"))
    checkpoints = choose((None, "synchronous", "asynchronous", "peers"))
    parts = {
        "faults": faults,
        "checkpoints": None if checkpoints is None else {"mechanism": checkpoints, "every": every},
        "recovery": choose((None, {"detect": 60}, {"detect": 0, "locate": 0, "replace": {"warm_spare": 0}})),
        "elastic": choose((None, "wait", {"drop": "data"}, {"replan": 1})),
        "spares": choose((None, 2, "auto")),
        "stragglers": choose((None, [{"stage": 0, "slowdown": choose((1.5, 1.01)), "from": 600}])),
    }
    return {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "gpus": choose((16, 8, 64)),
        "workload": {"seq_len": 2048, "global_batch": 64},
        "plan": {"tensor": choose((1, 2))},
        "run": {**run, **{key: value for key, value in parts.items() if value is not None}},
    }


def post_training(choose: Choose) -> Question:
    """A step of post-training: one of all schedules, on shared devices or on devices by role."""
    gpus, samples = choose((16, 8, 32)), choose((8, 4, 16))
    split = choose([{"train": train, "generate": gpus - train} for train in (gpus // 2, gpus // 4)])
    schedule = choose(
        (
            {"kind": "synchronous"},
            {"kind": "synchronous", "split": split},
            {"kind": "partial-rollouts", "extra": choose((0.5, 2))},
            {"kind": "tail-repacked"},
            {"kind": "one-step-off", "split": split},
            {
                "kind": "asynchronous",
                "split": split,
                "staleness": choose((2, 1, 4, 0.5)),
                "running": choose(("keep", "recompute", "finish")),
            },
            {"kind": "streaming", "split": split},
        )
    )
    spread = choose((0.5, 0.8, 0.2))
    return {
        "model": choose(("llama3.2-1b", "qwen2.5-7b", "llama3.1-8b", "qwen3-4b")),
        "cluster": choose(("dgx-h100", "dgx-a100-80gb", "dgx-h200", "dgx-b200")),
        "gpus": gpus,
        "framework": choose(("nemo-rl", "verl", "slime", "areal", "trl")),
        "workload": {
            "kind": "rl",
            "algorithm": choose(("grpo", "dapo", "rloo")),
            "prompts": choose((64, 32, 128)),
            "samples": samples,
            "mini_batch": 32 * samples,
            "input": choose((128, 700)),
            "output": {"kind": "lognormal", "median": choose((400, 1000)), "sigma": spread, "most": 3072},
        },
        "roles": {"generate": {"tensor": choose((1, 2, 4))}},
        "schedule": schedule,
    }


def strategy(generator: Callable[[Choose], Question]) -> st.SearchStrategy[Question]:
    """The questions of a generator as a hypothesis strategy, which shrinks towards first options."""

    @st.composite
    def questions(draw: st.DrawFn) -> Question:
        return generator(lambda options: draw(st.sampled_from(options)))

    return questions()


def spelled(question: Mapping[str, Any]) -> Question:
    """A scenario whose cluster and device are the catalogue's mappings, so that laws can change one key."""
    cluster = dict(clusters.definition(question["cluster"]))
    return {**question, "cluster": {**cluster, "device": dict(devices.definition(cluster["device"]))}}


def with_key(data: Mapping[str, Any], path: str, change: Callable[[Any], Any]) -> Question:
    """A copy of a mapping with the value at a key path (``cluster.network.nic_gbps``) changed."""
    first, _, rest = path.partition(".")
    return {**data, first: with_key(data[first], rest, change) if rest else change(data[first])}
