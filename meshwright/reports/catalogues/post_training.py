"""Algorithms, schedules, systems and weight transfers of post-training; samplers of simulators."""

from __future__ import annotations

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.catalogues.policies import policies
from meshwright.reports.tables import facts
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
    columns=("algorithm", "title", "forward passes"),
    row=lambda algorithm: [algorithm.name, algorithm.title, _passes(algorithm)],
    tables=lambda algorithm: [
        facts(
            {"title": algorithm.title, "forward passes": _passes(algorithm), "source": algorithm.source},
            algorithm.name,
        )
    ],
    text_columns=3,
)
SCHEDULES = policies("schedule of post-training", {schedule.name: schedule for schedule in RL_SCHEDULES})
FRAMEWORKS = Kind(
    names=rl_frameworks.names,
    get=rl_frameworks.get,
    columns=("system", "trainer", "engine", "packing", "weights"),
    row=lambda system: [system.name, system.train, system.engine, system.packing, system.transfer],
    text_columns=5,
)
TRANSFERS = Kind(
    names=transfers.names,
    get=transfers.get,
    columns=("transfer", "title", "send"),
    row=lambda way: [way.name, way.title, way.send],
    text_columns=3,
)
SAMPLERS = Kind(
    names=samplers.names,
    get=samplers.get,
    columns=("sampler", "title", "waits for"),
    row=lambda sampler: [sampler.name, sampler.title, sampler.waits],
    text_columns=3,
)
