"""Algorithms, schedules, systems and weight transfers of post-training; samplers of simulators."""

from __future__ import annotations

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.catalogues.policies import policies
from simulator.frames.samplers import samplers
from simulator.rl.algorithms import Algorithm, algorithms
from simulator.rl.frameworks import rl_frameworks
from simulator.rl.schedules import RL_SCHEDULES
from simulator.rl.transfers import transfers

PASSES = {
    "old_log_probs": "log-probabilities of the policy",
    "reference": "reference",
    "reward_model": "reward model",
    "critic": "critic",
}


def _passes(algorithm: Algorithm) -> str:
    """Forward passes over the answers, in words."""
    return ", ".join(words for name, words in PASSES.items() if getattr(algorithm, name)) or "none"


ALGORITHMS = Kind(
    names=algorithms.names,
    get=algorithms.get,
    cells={
        "algorithm": lambda algorithm: algorithm.name,
        "title": lambda algorithm: algorithm.title,
        "forward passes": _passes,
    },
    about=lambda algorithm: {
        "title": algorithm.title,
        "forward passes": _passes(algorithm),
        "source": algorithm.source,
    },
    text_columns=3,
)
SCHEDULES = policies("schedule of post-training", {schedule.name: schedule for schedule in RL_SCHEDULES})
FRAMEWORKS = Kind(
    names=rl_frameworks.names,
    get=rl_frameworks.get,
    cells={
        "system": lambda system: system.name,
        "trainer": lambda system: system.train,
        "engine": lambda system: system.engine,
        "packing": lambda system: system.packing,
        "weights": lambda system: system.transfer,
    },
    text_columns=5,
)
TRANSFERS = Kind(
    names=transfers.names,
    get=transfers.get,
    cells={
        "transfer": lambda way: way.name,
        "title": lambda way: way.title,
        "send": lambda way: way.send,
    },
    text_columns=3,
)
SAMPLERS = Kind(
    names=samplers.names,
    get=samplers.get,
    cells={
        "sampler": lambda sampler: sampler.name,
        "title": lambda sampler: sampler.title,
        "waits for": lambda sampler: sampler.waits,
    },
    text_columns=3,
)
