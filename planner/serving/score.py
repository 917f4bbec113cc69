"""Scores of deployments over arrays: largest rate within the targets, latencies and power at a load.

Steady states know means. The targets hold for a share of the requests, so waits are taken as exponential: the
quantile of TTFT is its mean plus (ln(1 / (1 - share)) - 1) times the mean wait and half a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodels.errors import InputError
from planner.serving.question import ServingQuestion
from planner.serving.shapes import ReplicaShape
from simulator.serving.steady import Limits, Load, Steady, steady_state

Array = NDArray[np.float64]

LEVELS, GRID = 4, 14
"""Nested grids of rates, and rates in each."""
SLOWEST = 1e-4
"""Lowest rate tried, over the rate that no replica reaches."""
BUDGETS = (512, 1024, 2048, 4096, 8192, 16384)
SEQUENCES = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Limited:
    """Limits of an engine to try on a shape, and the mean lengths to try them on; arrays of shape (limits,).

    Attributes:
        budget, sequences: the limits.
        prompt, output: tokens of a request; None for the question's means.
        replicas: among which a router balances arrivals; None for one.
    """

    budget: Array
    sequences: Array
    prompt: Array | None = None
    output: Array | None = None
    replicas: Array | None = None

    @classmethod
    def of(cls, question: ServingQuestion, shape: ReplicaShape) -> Limited:
        """Budgets and sequence limits up to the engine's defaults, unless fixed.

        Raises:
            InputError: more sequences are fixed than a step has tokens.
        """
        budgets = _up_to(question, "token_budget", BUDGETS, shape.options.token_budget)
        most = min(shape.options.max_sequences, int(budgets.max()))
        sequences = _up_to(question, "max_sequences", SEQUENCES, most)
        budget, sequence = np.meshgrid(budgets, sequences, indexing="ij")
        keep = budget.ravel() >= sequence.ravel()
        if not keep.any():
            raise InputError(
                f"max_sequences {int(sequences.min()):,} is above the token budget of {int(budgets.max()):,}",
                "--fix",
            )
        return cls(budget.ravel()[keep], sequence.ravel()[keep])

    def shared_by(self, replicas: ArrayLike) -> Limited:
        """The same limits, of replicas that share arrivals; counts and limits broadcast."""
        budget, sequences, count = np.broadcast_arrays(
            self.budget, self.sequences, np.asarray(replicas, float)
        )
        return Limited(budget, sequences, replicas=count)

    def __len__(self) -> int:
        return len(self.budget)


def _up_to(question: ServingQuestion, name: str, values: tuple[int, ...], default: int) -> Array:
    if name in question.fix:
        return np.array([question.fix[name]], float)
    most = min(default, question.limit.get(name, default))
    return np.array(sorted({value for value in values if value <= most} | {most}), float)


def steady(shape: ReplicaShape, load: Load, limits: Limited) -> Steady:
    """The steady state of one replica."""
    return steady_state(shape.table, load, Limits(limits.budget, limits.sequences, float(shape.kv_tokens)))


def ttft_quantile(question: ServingQuestion, state: Steady) -> Array:
    """TTFT of the share of requests that must meet it, s."""
    with np.errstate(invalid="ignore"):
        waits = (question.tail - 1.0) * state.queue_s + 0.5 * state.step_s
    return np.where(state.stable, state.ttft_s + np.maximum(waits, 0.0), np.inf)


def tpot_quantile(question: ServingQuestion, state: Steady) -> Array:
    """TPOT of the share of requests that must meet it, s, as a normal distribution."""
    return state.tpot_s + question.deviations * state.tpot_spread_s


def meets(question: ServingQuestion, state: Steady, extra_ttft: Array | float = 0.0) -> NDArray[np.bool_]:
    """Whether the targets hold, a mask."""
    slo = question.workload.slo
    first = ttft_quantile(question, state) + extra_ttft
    held = state.stable.copy()
    if slo.ttft is not None:
        held &= first <= slo.ttft
    if slo.tpot is not None:
        held &= tpot_quantile(question, state) <= slo.tpot
    if slo.e2e is not None:
        held &= first + state.decode_s <= slo.e2e
    return held


def largest_rate(
    question: ServingQuestion, shape: ReplicaShape, limits: Limited, phase: str = "mixed"
) -> Array:
    """Requests a second of one replica within the targets, by limits; 0 where even few miss.

    Four grids, each inside the interval of the last: to 5 parts in 10,000.
    """
    most = 4.0 / max(float(np.min(shape.table.decode_seconds(np.ones(1), np.ones(1)))), 1e-6)
    low, high = np.full(len(limits), most * SLOWEST), np.full(len(limits), most)
    found = np.zeros(len(limits))
    for level in range(LEVELS):
        share = np.linspace(0.0, 1.0, GRID)[:, None]
        rates = low * (high / low) ** share if level == 0 else low + (high - low) * share
        held = meets_phase(question, shape, limits, rates, phase)
        first = np.where(held.all(axis=0), GRID, np.argmin(held, axis=0))
        last = np.maximum(first - 1, 0)
        columns = np.arange(len(limits))
        found = np.where(first > 0, rates[last, columns], found)
        low, high = rates[last, columns], rates[np.minimum(first, GRID - 1), columns]
        high = np.maximum(high, low * (1 + 1e-9))
    return found


def meets_phase(
    question: ServingQuestion, shape: ReplicaShape, limits: Limited, rate: Array, phase: str
) -> NDArray[np.bool_]:
    """Whether a replica of one phase holds its part of the targets at a rate."""
    state = phase_state(question, shape, limits, rate, phase)
    slo = question.workload.slo
    if phase == "mixed":
        return meets(question, state)
    if phase == "prefill":
        # The first token follows the transfer of the KV and a step of the decode pool.
        after = transfer_s(question, shape) + (slo.tpot or 0.0)
        return state.stable & (ttft_quantile(question, state) + after <= (slo.ttft or slo.e2e or np.inf))
    return state.stable & (tpot_quantile(question, state) <= (slo.tpot or np.inf))


def phase_state(
    question: ServingQuestion, shape: ReplicaShape, limits: Limited, rate: Array, phase: str
) -> Steady:
    """The steady state of a replica that runs one phase: prefill only, decode only, or both."""
    prompt = question.prompt if limits.prompt is None else limits.prompt
    output = question.output if limits.output is None else limits.output
    shared = 1.0 if limits.replicas is None else limits.replicas
    cached = prompt - 1 if phase == "decode" else 0.0
    load = Load(prompt, 1.0 if phase == "prefill" else output, rate=rate, cached=cached, replicas=shared)
    return steady(shape, load, limits)


def transfer_s(question: ServingQuestion, prefill: ReplicaShape) -> float:
    """Seconds to send one prompt's KV of the last layer to the decode pool, others being sent while it runs.

    A replica uses its devices' share of the node's NICs.
    """
    cluster = question.cluster
    bandwidth = cluster.network.bandwidth * min(prefill.devices / cluster.devices_per_node, 1.0)
    return question.prompt * prefill.kv_token_bytes / question.model.layers / bandwidth
