"""Sequences beside a request where a router gives each arrival to the batch with fewest, over arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNEVEN = 0.1
"""What departures leave between balanced batches, square sequences over the mean: a Markov chain of two to
eight batches, each of up to 16 sequences, has 0.05 to 0.15."""


def companions(mean: Array, shared: Array) -> Array:
    """Mean number of sequences beside a request in its batch.

    Independent arrivals find as many as the mean batch. A balanced one takes the place that is free, so with
    many batches a request sees one sequence less: its own. That leaves none below one sequence a batch.

    Args:
        mean: mean sequences of a batch.
        shared: batches among which arrivals are balanced.
    """
    mean = np.maximum(mean, 1e-9)
    beyond = mean - (1.0 - 1.0 / shared)
    uneven = np.where(shared > 1.0, 4.0 * UNEVEN * mean, 0.0)
    return 0.5 * (beyond + np.sqrt(beyond**2 + uneven))


def met_share(mean: Array, replicas: Array) -> Array:
    """Prompts that come to a replica while it has a request, over those that come to it at any time.

    As many join a request's replica in its time as it found there.

    Args:
        mean: mean requests of a replica.
        replicas: replicas among which arrivals are balanced.
    """
    mean = np.maximum(mean, 1e-9)
    return companions(mean, replicas) / mean


def any_comes(mean: Array, replicas: Array) -> Array:
    """Chance that a step's time has an arrival.

    A balanced replica gets about each ``replicas``-th of random arrivals, more evenly than they come: the
    chance is the mean share of replicas that get one, where each arrival goes to one without. Several that
    began in one step end in one, and so do those that follow them: beyond one a step, arrivals stay as chance
    made them.

    Args:
        mean: arrivals at a replica in the time.
        replicas: replicas among which arrivals are balanced.
    """
    several, dealt = np.maximum(replicas, 2.0), np.minimum(mean, 1.0)
    even = dealt - poisson_excess(several * dealt, several)[0] / several
    by_chance = -np.expm1(-mean)
    return np.where(replicas > 1.0, np.maximum(even, by_chance), by_chance)


def poisson_excess(mean: Array, limit: Array) -> tuple[Array, Array]:
    """Mean by which a Poisson number exceeds a limit, and the chance that it does (normal, logistic tail)."""
    deviation = np.sqrt(mean) + 1e-9
    z = np.clip((limit - mean) / deviation, -20.0, 20.0)
    above = 1.0 / (1.0 + np.exp(1.702 * z))
    return np.maximum(deviation * (np.exp(-0.5 * z * z) / 2.5066 - z * above), 0.0), above


def poisson_above(mean: Array, limit: Array) -> Array:
    """Chance that a Poisson number exceeds a limit; as of `poisson_excess`."""
    z = np.clip((limit - mean) / (np.sqrt(mean) + 1e-9), -20.0, 20.0)
    return 1.0 / (1.0 + np.exp(1.702 * z))
