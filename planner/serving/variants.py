"""The best layouts in other number formats: fp8 KV, and other published checkpoints of the model.

Other formats change what the model answers, so they do not compete with the checkpoint's own; they are told
beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.errors import InfeasibleError
from planner.serving.closed import ClosedFigures
from planner.serving.phases import LEAST_RATE
from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.score import ReplicaCases, largest_rate, ttft_quantile
from planner.serving.shapes import ReplicaShape, choices, make_shape
from planner.serving.switches import SWITCHES
from simulator.serving.steps.table import IterationTable

DEGREES = ("clock_mhz", "power_cap_w", "tensor", "data", "pipeline", "expert", "speculation", *SWITCHES)


@dataclass(frozen=True, eq=False)
class Variant:
    """A layout in other formats.

    Attributes:
        weights, kv: the formats; None for KV as wide as the engine's default.
        plan: as many replicas as the layout has in the checkpoint's format.
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
    own = next(iter(choices(question)))["weights"]
    narrow = "kv" not in question.fix and "fp8" in question.cluster.device.peak_flops
    for weights in (own, *stored):
        for kv in (question.fix.get("kv"), *(("fp8",) if narrow else ())):
            if (weights, kv) != (own, question.fix.get("kv")):
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
    tables: dict[tuple[Any, ...], IterationTable] = {}
    kept, told = [], []
    for weights, kv in other_formats(question):
        for plan in single:
            pool = plan.groups[0].shape.pool
            if plan is not single[0] and weights != pool.stored:
                continue
            fields = {name: getattr(pool, name) for name in DEGREES} | {"weights": weights, "kv": kv}
            with suppress(InfeasibleError):
                kept.append(make_shape(narrowed, fields, tables))
                told.append((plan, weights, kv))
    return list(_best(narrowed, kept, told)) if kept else []


def _best(
    question: ServingQuestion,
    kept: Sequence[ReplicaShape],
    told: Sequence[tuple[ServingPlan, str, str | None]],
) -> Iterator[Variant]:
    """Replicas of each shape, as many as the plan has; none of a shape that carries nothing."""
    counts = np.array([plan.groups[0].replicas for plan, _, _ in told], float)
    most = np.array([shape.most for shape in kept], float)
    limits = [(plan.groups[0].budget, plan.groups[0].sequences) for plan, _, _ in told]
    cases = ReplicaCases.with_limits(question, kept, *zip(*limits, strict=True)).shared_by(
        np.minimum(counts, most)
    )
    if question.concurrency is not None:
        clients = question.concurrency / cases.replicas
        rates = load = ClosedFigures(cases, cases.replicas).rate
        state = cases.closed_state(clients)
    else:
        rates = largest_rate(cases)
        load = rates if question.rate is None else np.minimum(rates, question.rate / cases.replicas)
        state = cases.state(np.maximum(load, LEAST_RATE))
    first = ttft_quantile(question, state)
    for index in map(int, np.flatnonzero(rates > 0)):
        count, (plan, weights, kv) = int(cases.replicas[index]), told[index]
        group = replace(plan.groups[0], shape=kept[index], replicas=count)
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
                usd_per_hour=group.devices * kept[index].offer.usd_per_hour,
                meets=question.rate is None or bool(rates[index] * count >= question.rate),
            ),
        )
