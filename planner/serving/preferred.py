"""The deployment that one would launch: of those that the errors do not tell apart, a measured and plain one.

Errors of engine constants are known for plain servers: one pool, without pipeline stages and speculation. A
composed deployment is at least as uncertain, so its lead counts from the 90th percentile of these errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.serving.plan import ServingPlan
from planner.serving.shapes import ReplicaShape

Rows = Callable[[ReplicaShape], int]
"""Measured servers of a replica's layout; 0 for none."""

EVEN = 0.05
"""Loss of the plain server that ranks first against the best measured one, 90th percentile of 165 comparisons
(``python -m benchmarks.serving_choices``). Plain servers that are closer are not told apart."""


@dataclass(frozen=True)
class Measured:
    """What measured servers say of a question's deployments.

    Attributes:
        rows: counts the measured servers of a layout.
        error: 90th percentile of the error of plain servers' time per output token, as a share; None where it
            is not known.
    """

    rows: Rows
    error: float | None = None

    @property
    def band(self) -> float:
        """Lead within which a composed deployment is not told apart from a plain one, as a share."""
        return EVEN if self.error is None else max(self.error, EVEN)


def mechanisms(plan: ServingPlan) -> list[str]:
    """Mechanisms of a deployment that no plain server has."""
    pools = [group.shape.pool for group in plan.groups]
    names = {
        "disaggregation": len(pools) > 1,
        "pipeline stages": any(pool.pipeline > 1 for pool in pools),
        "speculation": any(pool.speculation is not None for pool in pools),
        "attention-FFN disaggregation": any(group.shape.attention is not None for group in plan.groups),
    }
    return [name for name, present in names.items() if present]


def measured_rows(plan: ServingPlan, measured: Measured) -> int:
    """Measured servers of a deployment's layout; 0 of two pools."""
    return measured.rows(plan.groups[0].shape) if len(plan.groups) == 1 else 0


def lead(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each deployment gives up to the best, as a share of the best.

    Args:
        values: figures to minimise, all positive or (figures to maximise) all negative, shape (deployments,).
    """
    best = values.min()
    return best / values - 1.0 if best < 0 else values / max(best, 1e-12) - 1.0


def preferred(
    values: NDArray[np.float64], composed: NDArray[np.int64], rows: NDArray[np.int64], band: float
) -> int:
    """Index of the deployment that one would launch.

    The best plain one goes before the best, where its gap lies within the band; else the one with fewest
    mechanisms of those on even footing with the best. Among plain ones on even footing a measured layout goes
    first.

    Args:
        values: figures as `lead` takes them, the best first, shape (deployments,).
        composed: mechanisms that no plain server has, shape (deployments,).
        rows: measured servers of each layout, shape (deployments,).
        band: lead of a composed deployment that tells nothing, as a share.
    """
    gaps = lead(values)
    plain = np.flatnonzero((composed == 0) & (gaps <= band))
    if not len(plain):
        even = np.flatnonzero(gaps <= EVEN)
        return int(even[np.argmin(composed[even])])
    even = plain[values[plain] <= values[plain[0]] + EVEN * abs(values[plain[0]])]
    measured = even[rows[even] > 0]
    return int(measured[0] if len(measured) else plain[0])
