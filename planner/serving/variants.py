"""The best layouts in other number formats: fp8 KV, and other published checkpoints of the model.

Other formats change what the model answers, so they do not compete with the checkpoint's own; they are told
beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError
from planner.serving.closed_clients import ClosedFigures
from planner.serving.engine_options import SWITCHES
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import SAME_RUNG, ReplicaCases, largest_rate, ttft_quantile
from planner.serving.roles import LEAST_RATE
from planner.serving.shapes import ReplicaShape, choices, make_shape

Array = NDArray[np.float64]

DEGREES = ("clock_mhz", "power_cap_w", "tensor", "data", "pipeline", "expert", "speculation", *SWITCHES)


@dataclass(frozen=True, eq=False)
class Variant:
    """A layout in other formats.

    Attributes:
        weights, kv: the formats; None for KV as wide as the engine's default.
        plan: the fewest replicas that carry the rate asked for; without one, as many as the layout has in the
            checkpoint's format.
    """

    weights: str
    kv: str | None
    plan: ServingPlan


def other_formats(question: ServingQuestion) -> Iterator[tuple[str, str | None]]:
    """Formats of weights and KV beside the search's own: those of other checkpoints, and fp8 KV with each."""
    if len(question.types) > 1 or "weights" in question.fix:
        stored: tuple[str, ...] = ()
    else:
        stored = tuple(question.model.checkpoints)
    own_format = next(iter(choices(question)))["weights"]
    keeps = question.model.causal  # an encoder has no cache
    narrow = keeps and "kv" not in question.fix and "fp8" in question.cluster.device.peak_flops
    for weights in (own_format, *stored):
        for kv in (question.fix.get("kv"), *(("fp8",) if narrow else ())):
            if (weights, kv) != (own_format, question.fix.get("kv")):
                yield weights, kv


def variants(question: ServingQuestion, plans: Sequence[ServingPlan]) -> list[Variant]:
    """Plans of one pool in other formats: narrow KV for each, the weights of other checkpoints for the first.

    Args:
        question: the question.
        plans: its answer, the best first.
    """
    single = [plan for plan in plans if len(plan.groups) == 1]
    narrowed = replace(question.at(question.types[0]), split=False, unasked=False)
    narrowed.__dict__["sample"] = question.sample
    variant_shapes, variant_plans = [], []
    for weights, kv in other_formats(question):
        for plan in single:
            pool = plan.groups[0].shape.pool
            if plan is not single[0] and weights != pool.stored:
                continue
            fields = {name: getattr(pool, name) for name in DEGREES} | {"weights": weights, "kv": kv}
            with suppress(InfeasibleError):
                variant_shapes.append(make_shape(narrowed, fields))
                variant_plans.append((plan, weights, kv))
    return list(_best(narrowed, variant_shapes, variant_plans)) if variant_shapes else []


def _fewest(
    question: ServingQuestion, cases: ReplicaCases, most_replicas: Array
) -> tuple[ReplicaCases, Array]:
    """The cases with the fewest replicas that carry the rate asked for, and the largest rate of one.

    Args:
        question: the question.
        cases: replicas, as many as the plan in the checkpoint's own format has.
        most_replicas: replicas at most, shape (cases,).
    """
    rates = largest_rate(cases)
    if question.rate is None or question.objective == "goodput" or "replicas" in question.fix:
        return cases, rates
    # More replicas share arrivals better, so the first guess may be one too many or too few.
    for _ in range(2):
        carried = np.where(rates > 0.0, rates, np.inf)
        counts = np.clip(np.ceil(question.rate / carried * (1.0 - SAME_RUNG)), 1.0, most_replicas)
        counts = np.where(rates > 0.0, counts, cases.replicas)
        if np.array_equal(counts, cases.replicas):
            break
        cases = cases.shared_by(counts)
        rates = largest_rate(cases)
    return cases, rates


def _best(
    question: ServingQuestion,
    variant_shapes: Sequence[ReplicaShape],
    variant_plans: Sequence[tuple[ServingPlan, str, str | None]],
) -> Iterator[Variant]:
    """Replicas of each shape, as `Variant` says; none of a shape that carries nothing."""
    # A layout's limits suit its own room for KV; the engine's own stand beside them.
    limits = [(plan.groups[0].budget, plan.groups[0].sequences) for plan, _, _ in variant_plans]
    limits += [(shape.options.token_budget, shape.options.max_sequences) for shape in variant_shapes]
    variant_plans, variant_shapes = [*variant_plans, *variant_plans], [*variant_shapes, *variant_shapes]
    counts = np.array([plan.groups[0].replicas for plan, _, _ in variant_plans], float)
    most_replicas = np.array([shape.most_replicas for shape in variant_shapes], float)
    cases = ReplicaCases.with_limits(question, variant_shapes, *zip(*limits, strict=True)).shared_by(
        np.minimum(counts, most_replicas)
    )
    if question.concurrency is not None:
        clients = question.concurrency / cases.replicas
        rates = load = ClosedFigures(cases, cases.replicas).rate
        state = cases.closed_state(clients)
    else:
        cases, rates = _fewest(question, cases, most_replicas)
        load = rates if question.rate is None else np.minimum(rates, question.rate / cases.replicas)
        state = cases.state(np.maximum(load, LEAST_RATE))
    first = ttft_quantile(question, state)
    carried_by = rates * cases.replicas
    short = np.zeros(len(rates)) if question.rate is None else np.maximum(question.rate - carried_by, 0.0)
    # The limits that carry the rate, with fewer replicas, or carry more.
    order = np.lexsort((-carried_by, cases.replicas, short))
    pairs = len(variant_shapes) // 2
    first_of = {int(index) % pairs: int(index) for index in order[::-1]}
    for index in sorted(first_of.values(), key=lambda number: number % pairs):
        if not rates[index]:
            continue
        count, (plan, weights, kv) = int(cases.replicas[index]), variant_plans[index]
        budget, sequences = map(int, limits[index])
        group = replace(
            plan.groups[0], shape=variant_shapes[index], replicas=count, budget=budget, sequences=sequences
        )
        carried = float(load[index] * count)
        yield Variant(
            weights,
            kv,
            ServingPlan(
                groups=(group,),
                goodput=float(rates[index] * count),
                load=carried,
                ttft_s=float(first[index]),
                tpot_s=float(state.tpot_s[index]),
                e2e_s=float(first[index] + state.decode_s[index]),
                output_tokens_s=carried * question.output,
                watts=float(state.watts[index]) * count,
                usd_per_hour=group.devices * variant_shapes[index].offer.usd_per_hour,
                meets=question.rate is None or bool(rates[index] * count >= question.rate),
            ),
        )
