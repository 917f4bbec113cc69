"""Shapes in roles on the steady state: the best limits of each, and its figures by the number of replicas.

A replica's figures depend on its rate and on how many replicas share the arrivals, so each shape and role is
scored once by its limits and once by its number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from planner.serving.plan import ReplicaGroup
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import (
    CLOSE,
    LEAST_RATE,
    MIXED,
    PREFILL,
    ROLES,
    SAME_RUNG,
    ReplicaCases,
    best_of_group,
    largest_rate,
    ttft_quantile,
)
from planner.serving.shapes import ReplicaShape
from simulator.serving.steady.steady import Steady

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NEAR = 0.03
"""Share of a largest rate within which limits change places with the number of replicas (assumed)."""
NEVER = 1e9
"""Seconds that represent an infinite wait."""


def _series(largest: int) -> Ints:
    """Small counts and a geometric series up to the most."""
    return distinct(np.geomspace(1, largest, largest.bit_length() + 1).round().astype(np.int64))


@dataclass(frozen=True, eq=False)
class Phase:
    """One shape in one role: its best limits, and its figures by the number of replicas.

    Arrays have shape (replicas,), from one replica up.
    """

    shape: ReplicaShape
    role: str
    budget: int
    sequences: int
    """The best limits of a step."""
    rate: Array
    """Largest rate of a replica within the targets, requests a second."""
    ttft: Array
    tpot: Array
    decode: Array
    """From the first to the last token; of a prefill replica, until the KV arrived."""
    watts: Array
    tried: int
    """Pairs of limits that were compared."""
    batch: float = field(kw_only=True)
    """Largest mean number of decoding sequences of a rank within the targets: at the rate asked for where one
    pool carries it, else at the largest rate."""
    bandwidth: float
    """Of the link to the other pool, B/s."""
    sending_s: float
    """Seconds of that link to send one prompt's KV."""
    cases: ReplicaCases
    """Replicas, a case for each number of them, of all phases that were scored together."""
    place: int
    """Of the first of this phase's cases."""

    def group(self, replicas: int) -> ReplicaGroup:
        """That many replicas."""
        return ReplicaGroup(self.shape, self.role, replicas, self.budget, self.sequences)

    def latency(self, replicas: int, rate: float) -> float:
        """Seconds of a request in this role where that many replicas share a rate.

        Of a prefill replica, until the KV arrived; of a decode replica, from the first token on.
        """
        at = self.place + replicas - 1
        case, load = self.cases[at : at + 1], np.array([max(rate / replicas, LEAST_RATE)])
        ttft, _, decode, _ = figures_of(case, load, case.state(load))
        return float(decode[0]) if self.role == "decode" else float(ttft[0] + decode[0])


def phases(
    question: ServingQuestion,
    kept_shapes: Sequence[ReplicaShape],
    roles: Sequence[int],
    progress: Callable[[float], None] | None = None,
) -> list[Phase]:
    """Score every role of every shape; the figures are those at the asked rate, else at the largest."""
    cases = ReplicaCases.of(question, kept_shapes, roles)
    most_replicas = np.array([shape.most_replicas for shape in kept_shapes], np.int64)
    cases = _with_links(cases.shared_by(most_replicas[cases.shape]), kept_shapes, question.devices)
    keys = np.stack([cases.role, cases.shape, -cases.bandwidth])
    _, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.ravel()
    rates = _at_fewest(cases, largest_rate(cases), group)
    if progress:
        progress(0.75)
    best = own_limits(cases, rates, group, best_of_group(rates, group))
    best_cases, tried = cases[best], np.bincount(group)

    # The largest rate at some counts, and linear between them.
    series = [_series(int(most_replicas[shape])) for shape in best_cases.shape]
    counts = [np.arange(1, int(most_replicas[shape]) + 1) for shape in best_cases.shape]
    owner = np.repeat(np.arange(len(best)), [len(every) for every in counts])
    every = np.concatenate(counts)
    sharing = best_cases[owner].shared_by(every)
    sharing.curve  # noqa: B018 (drawn once for all counts)
    in_series = np.concatenate([np.isin(*pair) for pair in zip(counts, series, strict=True)])
    at_series = largest_rate(sharing[np.flatnonzero(in_series)])
    limits = [
        np.interp(every, at, at_series[owner[in_series] == number])
        for number, (every, at) in enumerate(zip(counts, series, strict=True))
    ]
    limit = np.concatenate(limits)
    load = limit if question.rate is None else question.rate / every
    if question.objective == "goodput":
        load = np.minimum(load, limit)
    state = sharing.state(np.maximum(load, LEAST_RATE))
    figures = figures_of(sharing, load, state)
    # Where no pool carries the rate alone, batches at each shape's largest rate say whether they leave the
    # captured graphs: a pool of decodes carries the rate in smaller ones.
    mixed = limit[sharing.role == MIXED] * every[sharing.role == MIXED]
    carried = question.rate is None or bool((mixed >= question.rate).any())
    within = np.minimum(load, limit) if carried else limit
    batch = state.batch if np.array_equal(within, load) else _batch_within(sharing, within)
    ends = np.cumsum([len(part) for part in counts])[:-1]
    place = np.concatenate([[0], ends])
    batches = [float(part.max()) for part in np.split(batch, ends)]
    ttft, tpot, decode, watts = (np.split(figure, ends) for figure in figures)
    return [
        Phase(
            shape=kept_shapes[int(best_cases.shape[at])],
            role=ROLES[int(best_cases.role[at])],
            budget=int(best_cases.budget[at]),
            sequences=int(best_cases.sequences[at]),
            rate=limits[at],
            ttft=ttft[at],
            tpot=tpot[at],
            decode=decode[at],
            watts=watts[at],
            tried=int(tried[at]),
            batch=batches[at],
            bandwidth=float(best_cases.bandwidth[at]),
            sending_s=float(best_cases.sending_s[at]),
            cases=sharing,
            place=int(place[at]),
        )
        for at in range(len(best))
    ]


def _at_fewest(cases: ReplicaCases, rates: Array, group: Ints) -> Array:
    """Largest rates by which limits are compared: of as few replicas as carry the rate asked for.

    Only where the limits that are best for all replicas need another one; 0 of limits far below.

    Args:
        cases: cases of all groups, with the most replicas of each.
        rates: their largest rates, shape (cases,).
        group: group of each case.
    """
    question = cases.question
    if question.rate is None or question.objective == "goodput":
        return rates
    best = best_of_group(rates, group)
    largest = rates[best][group]
    fewest = np.ceil(question.rate / np.maximum(largest, LEAST_RATE) * (1.0 - SAME_RUNG))
    close = (rates > 0.0) & (rates >= largest * (1.0 - NEAR)) & (fewest < cases.replicas)
    if not close.any():
        return rates
    at_fewest = np.zeros(len(cases))
    at_fewest[close] = largest_rate(cases[np.flatnonzero(close)].shared_by(fewest[close]))
    carries = at_fewest * fewest >= question.rate * (1.0 - SAME_RUNG)
    needed = np.zeros(len(best), bool)
    needed[group[carries]] = True
    needed &= ~carries[best]
    return np.where(needed[group], at_fewest, rates)


def figures_of(cases: ReplicaCases, load: Array, state: Steady) -> tuple[Array, Array, Array, Array]:
    """TTFT, TPOT and decode of replicas, as in `Phase`, and the watts of all that share a load.

    Args:
        cases: replicas, each as many as share arrivals.
        load: requests a second of one replica of each, shape (cases,).
        state: theirs under it.
    """
    question = cases.question
    sent = sent_s(cases, np.maximum(load, LEAST_RATE), state.prefill_s)
    beside = np.array([shape.idle_watts_beside for shape in cases.shapes])[cases.shape]
    return (
        np.minimum(ttft_quantile(question, state), NEVER),
        np.where(state.stable, state.tpot_s, NEVER),
        np.where(state.stable, np.minimum(state.decode_s + sent, NEVER), NEVER),
        (state.watts + beside) * cases.replicas,
    )


def _batch_within(cases: ReplicaCases, rate: Array) -> Array:
    """Mean number of decoding sequences of a rank at rates within the targets; 0 where there is none."""
    return np.where(rate > 0.0, cases.state(np.maximum(rate, LEAST_RATE)).batch, 0.0)


def own_limits(cases: ReplicaCases, rates: Array, group: Ints, best: Ints) -> Ints:
    """The engine's own limits in place of the best ones of a group where they carry as much: both, or one.

    The limits of a case are at most the engine's own, so those are the largest of its group.

    Args:
        cases: cases of all groups.
        rates: their largest rates, shape (cases,).
        group: group of each case.
        best: number of the best case of each group.
    """
    target = rates[best] * (1.0 - 2.0 * CLOSE)
    budget, sequences = cases.budget[best][group], cases.sequences[best][group]
    limits, left = best.copy(), rates[best] > 0
    for among in (np.ones(len(cases), bool), cases.budget == budget, cases.sequences == sequences):
        order = np.flatnonzero(among)
        order = order[np.lexsort((cases.sequences[order], cases.budget[order], group[order]))]
        default_limits = order[np.append(np.flatnonzero(np.diff(group[order])), len(order) - 1)]
        taken = left & (rates[default_limits] >= target)
        limits, left = np.where(taken, default_limits, limits), left & ~taken
    return limits


def sent_s(cases: ReplicaCases, rate: Array, prefill_s: Array) -> Array:
    """Seconds from the end of a prompt to the arrival of its KV at a decode replica; 0 for other roles."""
    return np.where(cases.role == PREFILL, cases.transfer_s(rate, prefill_s), 0.0)


def _with_links(cases: ReplicaCases, kept_shapes: Sequence[ReplicaShape], devices: int) -> ReplicaCases:
    """The cases, with prefill replicas repeated for each link to decode replicas of another type or size."""
    cases_by_link = [np.arange(len(cases))]
    widths = [cases.bandwidth]
    for index, shape in enumerate(kept_shapes):
        prefill_cases = np.flatnonzero((cases.shape == index) & (cases.role == PREFILL))
        others = {shape.link_to(other, devices) for other in kept_shapes} if len(prefill_cases) else set()
        for width in sorted(others - {shape.link_bandwidth(devices)}):
            cases_by_link.append(prefill_cases)
            widths.append(np.full(len(prefill_cases), width))
    if len(cases_by_link) == 1:
        return cases
    cases.curve  # noqa: B018 (drawn once for all links)
    return cases[np.concatenate(cases_by_link)].over(np.concatenate(widths))
