"""Curves of deployments over their load: tokens/s of a GPU against tokens/s of a user."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.serving.plan import ServingPlan
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import ReplicaCases, ttft_quantile

SHARES = np.array([0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0])
"""Loads of a curve, as shares of the deployment's goodput."""


@dataclass(frozen=True, eq=False)
class LoadCurve:
    """A deployment at rising loads, arrays of shape (loads,).

    Attributes:
        rate: requests a second of the deployment.
        user: output tokens/s of a user.
        device: output tokens/s of a device; prompt tokens/s where requests end with their prompts.
        ttft_s: time to first token at the targets' share of requests, s.
    """

    rate: NDArray[np.float64]
    user: NDArray[np.float64]
    device: NDArray[np.float64]
    ttft_s: NDArray[np.float64]


def load_curve(question: ServingQuestion, plan: ServingPlan) -> LoadCurve | None:
    """The curve of a deployment up to its goodput; None where it has none.

    The last group of a deployment decodes, the first one computes prompts.
    """
    if question.concurrency is not None or not plan.goodput > 0:
        return None
    rates = plan.goodput * SHARES
    first, last = (
        ReplicaCases.of_group(question, group, len(rates)).state(rates / group.replicas)
        for group in (plan.groups[0], plan.groups[-1])
    )
    stable = first.stable & last.stable
    if stable.sum() < 2:
        return None
    rates = rates[stable]
    return LoadCurve(
        rates,
        1.0 / np.maximum(np.asarray(last.tpot_s)[stable], 1e-12),
        rates * (question.output if question.output > 1.0 else question.prompt) / plan.devices,
        ttft_quantile(question, first)[stable],
    )
