"""Waits of requests before their first step, over arrays: for tokens of a step, and for a slot."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.company import companions, met_share
from simulator.serving.steady.steady_cases import Cases, Prefills

Array = NDArray[np.float64]

MOST_FILLED = 0.98
"""Maximum share of time in steps whose token budget prompts fill, and of slots in use, that waits count."""
STEADIEST = 0.02
"""Least share of a deviation between micro batches that decays in a request's time."""
RUNAWAY = 2.0
"""One over the load of a pipeline from which one micro batch takes prompts up to its limits. For two stages
it follows from the times between plans; four stages do so at the same load on the event engine."""


class Waiting(Protocol):
    """What waits depend on, arrays of one shape; see `Cases`."""

    @property
    def ranks(self) -> Array: ...
    @property
    def stages(self) -> Array: ...
    @property
    def shared(self) -> Array: ...
    @property
    def varied(self) -> Array: ...
    @property
    def decodes(self) -> NDArray[np.bool_]: ...
    @property
    def spelled(self) -> NDArray[np.bool_]: ...
    @property
    def slots(self) -> Array: ...
    @property
    def gaps(self) -> Array: ...


class FullSteps(Protocol):
    """Steps that prompts fill; see `Prefills`."""

    @property
    def rank_chunks(self) -> Array: ...
    @property
    def full(self) -> Array: ...
    @property
    def chunks(self) -> Array: ...


def budget_wait(cases: Waiting, arriving: Array, steps: FullSteps) -> Array:
    """Wait for the prompts of others where steps are full: M/D/c, of varied prompts Pollaczek-Khinchine's
    factor above it. Without decodes a step starts at once, so steps are full only where all prompts wait.

    Args:
        cases: the loads.
        arriving: other prompts a second, on all ranks.
        steps: steps with prompts.
    """
    pooled = cases.shared / cases.ranks
    # Micro batches of a pipeline and replicas take from one queue; ranks already share a step, and prompts of
    # several steps are on one rank each.
    alone = np.where(cases.stages > 1, 0.0, pooled * np.where(steps.chunks > 1.0, cases.ranks, 1.0))
    # In a spell of prompts the wait for the running step, told apart, is a part of this: the load times it.
    power = np.where(
        cases.decodes,
        many_servers(pooled * cases.ranks * steps.rank_chunks) + cases.spelled,
        np.where(cases.stages > 1, pooled, many_servers(alone)),
    )
    return full_wait(arriving * steps.full, power, steps.full / pooled) * (1.0 + cases.varied)


def many_servers(servers: Array) -> Array:
    """Power of the load that is the chance to find all servers busy (Sakasegawa 1977)."""
    return np.sqrt(2.0 * servers + 2.0) - 1.0


def full_wait(load: Array, power: Array, seconds: Array) -> Array:
    """Wait of constant services.

    Args:
        load: of the servers.
        power: of the load, that is the chance to wait.
        seconds: of a service, over the servers.
    """
    busy = np.minimum(np.maximum(load, 0.0), MOST_FILLED)
    return 0.5 * busy**power / (1.0 - busy) * seconds


def rank_wait(
    cases: Waiting,
    through: Array,
    service: Array,
    prompt: Array,
    chunks: Array,
    most_chunks: Array,
    decode: Array,
) -> Array:
    """Wait of prompts behind those of their rank or replica, which take several steps each.

    Arrivals go where fewest sequences are. Those without tokens of their own yet are avoided, but one whose
    prompt is computed counts as a decode does: where others decode, an arrival finds it as often as it finds
    any sequence (`met_share`). It waits for half of what that one has left after the running step on average,
    and for all of the further ones.

    Args:
        cases: the loads.
        through: requests a second of one batch.
        service: seconds of a prompt on its rank without the wait, those until its first step included.
        prompt: seconds of its steps.
        chunks: its steps.
        most_chunks: prompts that share a step.
        decode: seconds from its first token to its last.
    """
    wait, left = np.zeros_like(through), 0.5 * (1.0 - 1.0 / np.maximum(chunks, 1.0))
    shared = np.maximum(most_chunks - 1.0, 0.0)
    computed = np.minimum(np.maximum(through * prompt - shared, 0.0), 1.0)
    for _ in range(2):
        inside = np.where(cases.decodes, service - prompt, service) + wait
        behind = np.maximum(companions(through * inside, cases.shared) - shared * cases.decodes, 0.0)
        share = met_share(through * (service + wait + decode), cases.shared)
        begun = np.where(cases.decodes, computed * share, np.minimum(behind, 1.0))
        whole_prompts = np.where(cases.decodes, behind, np.maximum(behind - 1.0, 0.0))
        wait = prompt * (left * begun + whole_prompts)
    several = cases.decodes | ((cases.ranks > 1.0) & (chunks > 1.0))
    return np.where((cases.stages == 1) & several, wait, 0.0)


def most_wait(cases: Cases, steps: Prefills, running: Array) -> Array:
    """Longest wait of clients for prompts of others: for two, or until all clients' are computed once.

    Args:
        cases: the loads.
        steps: steps with prompts.
        running: seconds of a request without the wait.
    """
    others = np.maximum(cases.clients - 1.0, 0.0) * steps.ranks * steps.full
    return np.minimum(0.5 * others, np.maximum(others - running, 2.0 * steps.full))


def slot_wait(cases: Waiting, through: Array, tpot: Array, alone: Array, longest: Array) -> Array:
    """Wait of arrivals that find all slots in use.

    The number of decoding sequences varies as that of a shared processor does (negative binomial, its
    variance 1 / (1 - load) of the mean); beyond the slots it falls off geometrically. Ranks, micro
    batches and replicas share arrivals, each of which goes to a free slot.

    Args:
        cases: the loads.
        through: requests a second of one batch.
        tpot, alone: mean seconds between decodes of a request, and those of a lone one.
        longest: decode time of a request beside as many as slots hold, s.
    """
    slots, arrivals = cases.slots * cases.shared, np.maximum(through * cases.shared, 1e-9)
    mean = arrivals * tpot * cases.gaps
    spread = np.sqrt(mean * tpot / alone) + 1e-9
    z = np.minimum(np.maximum((slots - mean) / spread, -4.0), 8.0)
    density = np.exp(-0.5 * z * z) / 2.5066 / spread * (1.0 + np.exp(-1.702 * z))
    ratio = np.minimum(np.maximum(arrivals * longest / slots, 0.0), MOST_FILLED)
    full = density / (1.0 - ratio)
    # Seconds between ends of requests in full slots; they do not fall as arrivals rise.
    return 0.5 * full / (1.0 + full) * longest / slots / (1.0 - ratio)
