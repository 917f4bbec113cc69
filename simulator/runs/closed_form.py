"""Closed forms of a run, over arrays of plans: effective training time, its best period, spares.

``effective`` is the share of wall time that makes progress (ETTR, goodput). The exact law is Daly's (A higher
order estimate of the optimum checkpoint interval, FGCS 2006): exponential faults that also strike saves and
recoveries. ``first_order`` is the law of Meta's RSC (Kokolis et al., HPCA 2025).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def effective(
    rate: ArrayLike, period: ArrayLike, stall: ArrayLike, recovery: ArrayLike, late: ArrayLike = 0.0
) -> Array:
    """Return the share of wall time that makes progress; arguments broadcast.

    Args:
        rate: faults of the job per second.
        period: seconds of work between saves.
        stall: seconds that training waits for each.
        recovery: seconds from a fault to the next step, without lost work.
        late: seconds from the end of the stall until the save is safe; to first order each fault loses as
            much work more.

    The mean wall time of a period and its save is exp(rate R) (exp(rate (period + stall)) - 1) / rate.
    """
    rates, work, save, back, lag = np.broadcast_arrays(
        *(np.asarray(each, dtype=np.float64) for each in (rate, period, stall, recovery, late))
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        exposed = np.exp(rates * back) * np.expm1(rates * (work + save)) / rates
        wall = np.where(rates > 0, exposed * (1 + rates * lag), work + save)
        return np.where(np.isinf(work) & (rates == 0), 1.0, work / wall)


def first_order(rate: ArrayLike, period: ArrayLike, stall: ArrayLike, recovery: ArrayLike) -> Array:
    """RSC's law, (1 - rate (u + period / 2)) / (1 + stall / period); not positive: no progress."""
    rates, work = np.asarray(rate, dtype=np.float64), np.asarray(period, dtype=np.float64)
    return (1 - rates * (np.asarray(recovery) + work / 2)) / (1 + np.asarray(stall) / work)


def best_period(rate: ArrayLike, stall: ArrayLike) -> Array:
    """Period that maximises ``effective``: the root of x = 1 - exp(-x - rate stall), x = rate period.

    The recovery does not move it. Arguments broadcast.
    """
    rates, save = np.broadcast_arrays(np.asarray(rate, dtype=np.float64), np.asarray(stall, dtype=np.float64))
    shift = rates * save
    root = np.minimum(np.sqrt(2 * shift), 1.0)
    for _ in range(60):
        beyond = np.exp(-root - shift)
        slope = 1 - beyond
        root = np.where(slope > 0, root - (root - 1 + beyond) / np.where(slope > 0, slope, 1.0), root)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rates > 0, root / rates, np.inf)


def elastic(
    rate: ArrayLike,
    period: ArrayLike,
    stall: ArrayLike,
    waits: ArrayLike,
    out: ArrayLike,
    replicas: ArrayLike,
) -> Array:
    """Effective time where replicas are dropped, (1 - rate (waits + out / replicas)) / (1 + stall / period).

    Args:
        rate, period, stall: as for ``effective``.
        waits: seconds that all replicas wait for each fault.
        out: seconds that one replica is out.
        replicas: data-parallel replicas.
    """
    lost = np.asarray(waits, dtype=np.float64) + np.asarray(out) / np.asarray(replicas)
    with np.errstate(divide="ignore", invalid="ignore"):
        saves = np.where(np.isinf(np.asarray(period)), 0.0, np.asarray(stall) / np.asarray(period))
    return (1 - np.asarray(rate) * lost) / (1 + saves)


def simultaneous_losses(nodes: int, rate: float, repair_s: float, quantile: float = 0.99) -> int:
    """Nodes down at the same time that are exceeded with less than ``1 - quantile``: a binomial quantile.

    Args:
        nodes: nodes of the job.
        rate: losses of one node per second.
        repair_s: mean seconds until a node is back.
        quantile: share of the time that as many spares suffice.
    """
    down = rate * repair_s / (1 + rate * repair_s)
    if down <= 0:
        return 0
    total = 0.0
    for count in range(nodes + 1):
        ways = math.lgamma(nodes + 1) - math.lgamma(count + 1) - math.lgamma(nodes - count + 1)
        total += math.exp(ways + count * math.log(down) + (nodes - count) * math.log1p(-down))
        if total >= quantile:
            return count
    return nodes


def slowest_of_iid(draws: ArrayLike, ranks: int, left_out: int = 0) -> float:
    """Mean of the slowest of ``ranks`` samples when the ``left_out`` slowest are not waited for.

    An order statistic of the empirical law: E[X_(n-b)] of n, as a synchronous step with b backup workers.

    Args:
        draws: samples of one rank's time.
        ranks: n.
        left_out: b.
    """
    ordered = np.sort(np.asarray(draws, dtype=np.float64))
    count = len(ordered)
    share = (np.arange(count + 1) / count)[:, np.newaxis]
    orders = np.arange(ranks - left_out, ranks + 1)
    logs = np.array(
        [math.lgamma(ranks + 1) - math.lgamma(k + 1) - math.lgamma(ranks - k + 1) for k in orders]
    )
    with np.errstate(divide="ignore"):
        terms = (
            logs + orders * np.log(share) + (ranks - orders) * np.where(orders < ranks, np.log1p(-share), 0.0)
        )
    below = np.exp(np.where(np.isnan(terms), -np.inf, terms)).sum(axis=1)
    return float((np.diff(below) * ordered).sum())
