"""Policies around a deployment, tried on the event engine: moves, tiers, adapters' memory, starts.

The steady state of a search prices replicas, not state that moves. So the policies of the best deployment are
tried by its largest rate within the targets, each combination with the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from core.errors import InputError
from planner.execution import Execution
from planner.serving.deployment import scenario_of
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.refine import RefinedServing, refine_scenarios
from simulator.scenario import changed
from simulator.serving.question.deployment import Pool

ENCODER = "encoder"
"""Key of a number of encoders, which take devices of the deployment's own replicas."""
TRIED = ("migrate", "tiers", "adapters.memory", "start.from", "finetuning.tpot", "router", "scaler", ENCODER)
"""Keys of a deployment whose values may be tried."""
MOST_COMBINATIONS = 64


@dataclass(frozen=True)
class PolicyRun:
    """One combination of policies.

    Attributes:
        policies: values by key of the deployment; None where the deployment goes without.
        run: its largest rate within the targets.
    """

    policies: Mapping[str, Any]
    run: RefinedServing

    @property
    def stated_values(self) -> int:
        """Keys with a value: of equal combinations the one with fewest is chosen."""
        return sum(value is not None for value in self.policies.values())


@dataclass(frozen=True)
class PolicySearch:
    """All combinations, the best first."""

    runs: Sequence[PolicyRun]

    @property
    def best(self) -> PolicyRun:
        """The combination with the largest rate; of those whose intervals overlap with its, the plainest."""
        first = self.runs[0]
        close = [candidate for candidate in self.runs if overlapping(candidate.run, first.run)]
        return min(close, key=lambda candidate: candidate.stated_values)


def overlapping(run: RefinedServing, other: RefinedServing) -> bool:
    """Whether the intervals of two rates overlap."""
    return not run.problem and abs(run.goodput - other.goodput) <= run.half_width + other.half_width


def combinations(tries: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of values, in the order in which they are given.

    Raises:
        InputError: there are more than ``MOST_COMBINATIONS``.
    """
    combined = [dict(zip(tries, values, strict=True)) for values in product(*tries.values())]
    if len(combined) > MOST_COMBINATIONS:
        raise InputError(
            f"at most {MOST_COMBINATIONS} combinations are tried, found {len(combined):,}; try fewer values",
            "--try",
        )
    return combined


def with_policies(scenario: Mapping[str, Any], policies: Mapping[str, Any]) -> dict[str, Any]:
    """A deployment's scenario with policies; a key whose value is None is left out.

    Raises:
        InputError: a key inside another that the deployment does not state.
    """
    data = dict(scenario)
    for key, value in policies.items():
        if key == ENCODER:
            data = data if value is None else _with_encoders(data, value)
            continue
        outer, inside, _ = key.partition(".")
        deployment = data["deployment"]
        if inside and not deployment.get(outer) and outer != "start":
            raise InputError(f"the scenario states no deployment.{outer}", f"--try {key}")
        if value is None:
            rest = {name: setting for name, setting in deployment.items() if name != outer}
            data = {**data, "deployment": rest}
        else:
            data = changed(data, f"deployment.{key}", value, "plan")
    return data


def _with_encoders(scenario: Mapping[str, Any], encoders: int) -> dict[str, Any]:
    """A deployment on the same devices: encoders of one device each have those of replicas for prompts.

    Raises:
        InputError: no replica is left for prompts.
    """
    deployment = dict(scenario["deployment"])
    sole_pool = {
        key: deployment.pop(key) for key in list(deployment) if key in Pool.model_fields and key != "engine"
    }
    first, *others = deployment.get("pools") or [sole_pool]
    devices = first.get("tensor", 1) * first.get("data", 1) * first.get("pipeline", 1)
    replicas = first.get("replicas", 1) - -(-encoders // devices)
    if replicas < 1:
        spare = devices * (first.get("replicas", 1) - 1)
        raise InputError(
            f"{encoders} leave no replica of rank 1 for prompts; at most {spare} of its devices may encode"
            if spare
            else "rank 1 has one replica for prompts, which leaves no device to an encoder",
            f"--try {ENCODER}",
        )
    pools = [{"role": "encoder", "replicas": encoders}, {**first, "replicas": replicas}, *others]
    return {**scenario, "deployment": {**deployment, "pools": pools}}


def try_policies(
    question: ServingQuestion, plan: ServingPlan, tries: Mapping[str, Sequence[Any]], execution: Execution
) -> PolicySearch:
    """Run all combinations of policies around a deployment.

    Args:
        question: of the search; states a latency target.
        plan: the deployment.
        tries: values to try by key of the deployment (``TRIED``); None goes without.
        execution: where the runs go.

    Raises:
        InputError: no target, too many combinations, or a key that the deployment lacks.
    """
    if not question.workload.slo.has_targets:
        raise InputError("needs a target (--ttft, --tpot), within which the largest rate counts", "--try")
    if ENCODER in tries and question.pictures is None:
        raise InputError(
            "has nothing to encode: requests have no images (--images 2x1280x720)", "--try encoder"
        )
    tried = combinations(tries)
    base = scenario_of(question, plan)
    scenarios = [with_policies(base, policies) for policies in tried]
    results = [RefinedServing(0.0, 0.0)] * len(tried)
    for number, run in _run(question, plan, scenarios, execution):
        results[number] = run
    runs = [PolicyRun(policies, run) for policies, run in zip(tried, results, strict=True)]
    return PolicySearch(
        sorted(runs, key=lambda combination: (-combination.run.goodput, combination.stated_values))
    )


def _run(
    question: ServingQuestion,
    plan: ServingPlan,
    scenarios: Sequence[Mapping[str, Any]],
    execution: Execution,
) -> Iterator[tuple[int, RefinedServing]]:
    return refine_scenarios(question, [(dict(scenario), plan) for scenario in scenarios], execution)
