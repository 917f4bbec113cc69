"""Two states of one rate, over arrays: beside small batches, and beside batches that outgrew the graphs.

Where a step jumps, replicas carry more requests a second below the jump than just above it. At rates between
these a batch may stay on either side, and chance moves it. The number of sequences is a birth-death chain
(`mean_steps` has it for small numbers). With p(n) the chance of a number and P(n) that of all up to it, a
chain from below first passes the jump at N after

    sum over n <= N of P(n) / p(n)

arrivals (Karlin and McGregor 1957, "The classification of birth and death processes"). A run that starts
empty has the mean of both states over its own length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.meetings import MOST_INTERFERENCE
from simulator.serving.steady.state import LIKELY
from simulator.serving.steady.steady_cases import Cases

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NEARER = 3
"""Points of a curve that are moved to one, two, ... deviations of a batch before a jump of the step."""
LEFT = "running_s", "service_s", "prompt_s", "watts"
"""Figures that a batch behind a jump of the step has a part of, with its times between decodes."""
RUN = 4000.0
"""Arrivals of the run over which both states are averaged: the run of the event engine by which the search
confirms a rate (`planner.serving.refine.LONGER` times the requests of a workload)."""
SKIPPED = 0.2
"""Share of it that is skipped as warm-up."""
PARTS = 2
"""Parts of an interval between two numbers that are priced."""
FARTHEST = 500.0
"""Logarithm of the least chance over the largest."""


def in_both_states(
    cases: Cases, points: dict[str, Array], around: Array, riser: Ints, taken: Array
) -> dict[str, Array]:
    """The figures of points, of which those before a jump of the step have a part of the state behind it.

    Args:
        cases: the loads, all of them at each point.
        points: figures of the points by name, shape (points, cases).
        around: mean sequences of a batch, of that shape.
        riser: number of the point before the jump; -1 without one.
        taken: share of time that prompts take from decodes.
    """
    some = np.flatnonzero(riser >= 0)
    if not some.size:
        return points
    riser, count = riser[some], len(around)
    nearer = np.maximum(riser - np.arange(NEARER + 1)[:, None], 0)
    taken = np.broadcast_to(taken, cases.slots.shape).reshape(around.shape)
    # The rates of the state behind the jump rise with its batch.
    rising = np.where(np.arange(count)[:, None] > riser, points["rate"][:, some], np.inf)
    rising = np.minimum.accumulate(rising[::-1], axis=0)[::-1]
    rate = points["rate"][nearer, some]
    low = np.clip(np.sum(rising[:, None] <= rate, axis=0) - 1, np.minimum(riser + 1, count - 2), count - 2)
    every = np.arange(some.size)
    before, after = rising[low, every], rising[low + 1, every]
    part = np.clip((rate - before) / np.maximum(after - before, 1e-12), 0.0, 1.0)

    def both(values: Array) -> tuple[Array, Array]:
        first, second = values[low, some], values[low + 1, some]
        return values[nearer, some], first + part * (second - first)

    # The mean batch before the jump meets longer steps by chance: prompts take as they do farther off.
    here, far = both(taken)
    here = np.minimum(here[-1] * rate / np.maximum(rate[-1], 1e-9), MOST_INTERFERENCE)
    share, arrivals = passage(cases, around, riser, some, rate, (here, np.minimum(far, MOST_INTERFERENCE)))
    mixed = {name: values.copy() for name, values in points.items()}
    mixed["lasts"][nearer, some] = arrivals
    for name in LEFT:
        here, far = both(points[name])
        mixed[name][nearer, some] = here + share * (far - here)
    here, far = both(1.0 / points["pace"])
    here_s, far_s = both(points["slow_s"] - 1.0 / points["pace"])
    tpot = here + share * (far - here)
    squares = (1.0 - share) * here_s**2 + share * far_s**2
    spread = np.sqrt(squares + share * (1.0 - share) * (LIKELY * (far - here)) ** 2)
    mixed["pace"][nearer, some] = 1.0 / tpot
    mixed["slow_s"][nearer, some] = tpot + spread
    return mixed


def passage(
    cases: Cases, around: Array, riser: Ints, some: Ints, rates: Array, taken: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Share of a run that batches spend above the jump, and arrivals until an empty batch passes it; infinite
    where batches are above it for less than half of all time. Of shape (rates, some).

    Args:
        cases: the loads, all of them at each point.
        around: mean sequences of a batch, shape (points, cases).
        riser: number of the point before the jump, shape (some,).
        some: numbers of the cases with a jump.
        rates: requests a second of one batch, shape (rates, some).
        taken: share of time that prompts take from decodes below and above the jump, of that shape.
    """
    numbers, seconds, jump = _priced(cases, around, riser, some)
    gaps, shared = (np.broadcast_to(values, cases.slots.shape)[some] for values in (cases.gaps, cases.shared))
    # Numbers and rates at the middle of the parts of each interval.
    middle = ((np.arange(PARTS) + 0.5) / PARTS)[:, None]
    log_carried = np.log(np.maximum(numbers, 0.5) / (gaps * seconds))
    fine, logs = (
        (low[:-1, None] + middle * np.diff(low, axis=0)[:, None]).reshape(-1, some.size)
        for low in (numbers, log_carried)
    )
    width = np.repeat(np.diff(numbers, axis=0) / PARTS, PARTS, axis=0)
    carried = np.cumsum(logs * width, axis=0) - 0.5 * logs * width
    under = fine <= jump
    below, above = (np.log1p(-share)[:, None] for share in taken)
    chance = fine * np.log(np.maximum(rates, 1e-9))[:, None] - carried
    chance = shared * (chance - np.minimum(fine, jump) * below - np.maximum(fine - jump, 0.0) * above)
    # Logarithms of the chance, from the largest of either side on.
    small, far = np.where(under, chance, -np.inf), np.where(under, -np.inf, chance)
    mode, far_mode = small.max(axis=1), far.max(axis=1)
    weight = np.exp(np.maximum(small - mode[:, None], -FARTHEST))
    likely = np.where(under, weight * width, 0.0)
    passed = np.cumsum(likely, axis=1)
    arrivals = shared**2 * np.sum(np.where(under, width * (passed - 0.5 * likely) / weight, 0.0), axis=1)
    odds = np.exp(np.clip(far_mode - mode, -FARTHEST, FARTHEST))
    odds = odds * np.sum(np.exp(far - far_mode[:, None]) * width, axis=1) / passed[:, -1]
    settled = odds / (1.0 + odds)
    # Two states forget where they began as an exponential; its mean over the part that is not skipped.
    times = np.clip(RUN / (arrivals * np.maximum(settled, 1e-300)), 1e-6, FARTHEST)
    start = (np.exp(-SKIPPED * times) - np.exp(-times)) / (times * (1.0 - SKIPPED))
    return settled * (1.0 - np.minimum(start, 1.0)), np.where(settled > 0.5, arrivals, np.inf)


def _priced(cases: Cases, around: Array, riser: Ints, some: Ints) -> tuple[Array, Array, Array]:
    """Numbers of sequences in rising order, their decode steps, s, and the last number before the jump.

    Numbers come closer about the jump until they tell it from the next sequence.
    """
    points, count = around.shape
    every = np.arange(some.size)

    def steps(numbers: Array) -> Array:
        batches = np.ones(around.shape)
        batches[:, some] = np.maximum(numbers, 1.0)
        return cases.decode_steady(batches.ravel()).reshape(points, count)[:, some]

    numbers = [around[:, some]]
    seconds = [steps(numbers[0])]
    low, high = numbers[0][riser, every], numbers[0][np.minimum(riser + 2, points - 1), every]
    for _ in range(2):
        within = np.linspace(low, high, points)
        between = steps(within)
        at = np.argmax(between[1:] / between[:-1] * within[:-1] / within[1:], axis=0)
        low, high = within[at, every], within[at + 1, every]
        numbers.append(within)
        seconds.append(between)
    every_number, every_second = np.concatenate(numbers), np.concatenate(seconds)
    order = np.argsort(every_number, axis=0, kind="stable")
    return np.take_along_axis(every_number, order, 0), np.take_along_axis(every_second, order, 0), low
