"""Fronts of serving: throughput, cost and energy against what a user feels, over shapes and concurrencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from core.arrays import distinct
from planner.pareto import Axis, Front, Fronts
from planner.serving.deployment import scenario_of
from planner.serving.plan import SECONDS_AN_HOUR, ReplicaGroup, ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.shapes import ReplicaShape, nothing_fits, shapes
from simulator.serving.steady.steady import Limits, Load, steady_state
from simulator.serving.steps.capped import step_arrays

STEPS_AN_OCTAVE = 2
MOST_CLIENTS = 2048


def serving_fronts(
    question: ServingQuestion,
    progress: Callable[[float], None] | None = None,
    error: Callable[[ReplicaShape], float | None] = lambda _: None,
) -> Fronts:
    """Every shape of a replica under every concurrency, with the engine's own limits.

    Args:
        question: model, devices, lengths; a rate and targets are not read.
        progress: called with the finished share.
        error: share beyond which one of ten measured servers of a shape lies; None where it is not known.

    Raises:
        InfeasibleError: no replica fits.
    """
    removed: Counter[str] = Counter()
    kept_shapes = list(shapes(question, removed))
    if not kept_shapes:
        raise nothing_fits(question, removed)
    octaves = np.arange(int(np.log2(MOST_CLIENTS)) * STEPS_AN_OCTAVE + 1)
    clients = distinct(np.round(2.0 ** (octaves / STEPS_AN_OCTAVE)))
    limits = [_own_limits(question, shape) for shape in kept_shapes]
    which = np.repeat(np.arange(len(kept_shapes)), len(clients))
    room = np.array([shape.kv_tokens for shape in kept_shapes], float)[which]
    budget, sequences = np.array(limits, float)[which].T
    load = Load(question.prompt, question.output, concurrency=np.tile(clients, len(kept_shapes)))
    steps = step_arrays([shape.table for shape in kept_shapes]).cases(which)
    state = steady_state(steps, load, Limits(budget, sequences, room))
    if progress:
        progress(1.0)

    devices = np.repeat([float(shape.devices) for shape in kept_shapes], len(clients))
    tokens, tpot, e2e = state.output_tokens_s, state.tpot_s, state.e2e_s
    price = question.types[0].usd_per_hour
    slo = question.workload.slo
    least = 1.0 / slo.tpot if slo.tpot else None
    speed = Axis("tokens/s of a user", "user_tokens_per_s", 1.0 / tpot, higher=True, target=least)
    latency = Axis("end-to-end latency, s", "e2e_s", e2e, target=slo.e2e)
    carried = Axis("output tokens/s per GPU", "tokens_per_s_per_gpu", tokens / devices, higher=True)
    cost = Axis(
        "$ per million tokens", "usd_per_million_tokens", devices * price / SECONDS_AN_HOUR / tokens * 1e6
    )
    energy = Axis("J per token", "joules_per_token", state.watts / tokens)

    def parts(point: int) -> tuple[ReplicaShape, tuple[int, int], int]:
        shape, at = divmod(point, len(clients))
        return kept_shapes[shape], limits[shape], int(clients[at])

    def name(point: int) -> str:
        shape, _, busy = parts(point)
        return f"{shape.describe()}, {busy} request{'s' if busy > 1 else ''} at a time"

    def scenario(point: int) -> dict[str, object]:
        shape, step_limits, busy = parts(point)
        group = ReplicaGroup(shape, "mixed", 1, *step_limits)
        plan = ServingPlan((group,), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, True)
        data = scenario_of(question, plan)
        data["workload"]["arrivals"] = {"kind": "closed", "concurrency": busy}
        return data

    return Fronts(
        f"{question.model.name} on {question.cluster.device.name}, {question.prompt:,.0f} tokens in, "
        f"{question.output:,.0f} out",
        [Front(speed, carried), Front(latency, cost), Front(latency, energy)],
        name,
        scenario,
        lambda point: error(parts(point)[0]),
    )


def _own_limits(question: ServingQuestion, shape: ReplicaShape) -> tuple[int, int]:
    """Token budget and sequences: the engine's default limits, or those that are fixed."""
    budget = int(question.fix.get("token_budget", shape.options.token_budget))
    return budget, int(question.fix.get("max_sequences", shape.options.max_sequences))
