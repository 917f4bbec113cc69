"""Seconds of groups of context-parallel ranks of each degree, from the ops of a micro batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.ops import Collective, Op, Rank, backward, head, layers
from simulator.packing.costs import DegreeCosts
from simulator.packing.grouped_steps import GroupedStep, GroupedSteps
from simulator.plan import Plan
from simulator.pricing import Prices, price
from simulator.workload import Training

Array = NDArray[np.float64]

PARTS = 8
"""Documents, and shares of a full micro batch, by which the three terms of a cost are told apart."""


def grouped_step(
    drawn: GroupedSteps,
    plan: Plan,
    training: Training,
    rank: Callable[[Array, Array, Array], Rank],
    prices: Prices,
) -> tuple[DegreeCosts, GroupedStep]:
    """Costs of groups of each degree that divides the plan's, and the drawn steps.

    Args:
        drawn: documents of steps.
        plan: of the job.
        training: its workload.
        rank: one rank's view, from context-parallel ranks, sequences and their length, each (cases,).
        prices: of the step's ops.
    """
    ranks = np.arange(1, plan.context + 1, dtype=np.float64)
    degrees = ranks[plan.context % ranks == 0]
    room = plan.micro_batch * training.seq_len / plan.context
    costs = degree_costs(degrees, room, rank, prices, plan.pipeline == 1)
    count = max(training.micro_batches(plan.data, plan.micro_batch), 1)
    return costs, drawn.of(costs, plan.data * plan.context, count)


def degree_costs(
    degrees: Array, room: float, rank: Callable[[Array, Array, Array], Rank], prices: Prices, ends: bool
) -> DegreeCosts:
    """Price a micro batch of groups of each degree at three shapes.

    Args:
        degrees: context-parallel ranks of a group, ascending, shape (degrees,).
        room: tokens that one rank holds.
        rank: one rank's view, from context-parallel ranks, sequences and their length, each (cases,).
        prices: of the step's ops.
        ends: whether the rank has the output layer.
    """
    full = room * degrees
    shapes = (1.0, full), (PARTS, full / PARTS), (1.0, full / PARTS)
    sequences = np.concatenate([np.full(len(degrees), count) for count, _ in shapes])
    lengths = np.concatenate([length for _, length in shapes])
    view = rank(np.tile(degrees, len(shapes)), sequences, lengths)
    single, several, short = _seconds(view, prices, ends).reshape(len(shapes), -1)
    square = np.maximum(single - several, 0.0) / (full**2 * (1 - 1 / PARTS))
    rest = full**2 * (1 / PARTS - 1 / PARTS**2) * square
    token = np.maximum(several - short - rest, 0.0) / (full * (1 - 1 / PARTS))
    fixed = np.maximum(single - token * full - square * full**2, 0.0)
    return DegreeCosts(degrees, fixed, token, square, room)


def _seconds(rank: Rank, prices: Prices, ends: bool) -> Array:
    """Forward and backward seconds of the model's layers on one rank, shape (cases,)."""
    groups = rank.model.layer_groups
    listed = [(ops, len(places)) for ops, places in zip(layers(rank, groups), groups.values(), strict=True)]
    if ends:
        listed.append((head(rank), 1))
    total = np.zeros(np.shape(rank.tokens))
    for ops, count in listed:
        for passes in (ops, backward(ops)):
            total = total + count * _exposed(passes, price(passes, prices))
    return total


def _exposed(ops: Sequence[Op], seconds: Sequence[np.ndarray]) -> Array:
    """Kernels, and what collectives leave beyond the share of the core's kernels that they run beside."""
    timed = list(zip(ops, seconds, strict=True))
    core = sum(
        (time for op, time in timed if op.part == "core" and not isinstance(op, Collective)), np.zeros(())
    )
    total = np.zeros(())
    for op, time in timed:
        hidden = np.minimum(time, op.window * core) if isinstance(op, Collective) else 0.0
        total = total + time - hidden
    return total
