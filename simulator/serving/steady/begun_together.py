"""Closed loops whose clients begin together and whose requests have equal lengths, over arrays.

Prompts that filled a step at the start come in one step again, a cycle later: clients stay in groups, one
group a step. While a request is on its way to its first step, the next groups end; they do so in decode
steps, which are short, so that prompts queue behind each other and their requests decode beside fewer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.steady_cases import Cases, Prefills

Array = NDArray[np.float64]

TURN = 0.5
"""Steps that a request waits on average for the end of the running one."""


class BegunTogether(NamedTuple):
    """Means over the requests of a cycle, s."""

    tpot_s: Array
    last_tpot_s: Array
    """The same of each client's last request: no prompts follow those of the last groups."""
    wait_s: Array
    """For the prompts of other groups."""


def together(cases: Cases, steps: Prefills, step: Array, delay: Array) -> BegunTogether:
    """The cycle of clients that began together.

    Args:
        cases: the loads.
        steps: steps with prompts.
        step: seconds of a pure decode step.
        delay: seconds that decodes lose to a prompt, on any rank.
    """
    running = np.minimum(cases.clients, cases.slots)
    group = steps.rank_chunks / steps.chunks
    groups = np.maximum(running / group, 1.0)
    full = steps.seconds(steps.ranks * steps.rank_chunks)
    # Where requests wait for slots, the next one begins as soon as one ends.
    away = np.where(cases.clients <= cases.slots, cases.fixed / step + TURN + cases.ahead, 0.0)
    away = np.minimum(away, groups - 1.0)
    late = away - away * (away + 1.0) / (2.0 * groups)
    others = np.maximum(running - np.maximum(group, 1.0), 0.0)
    met = np.maximum(others - group * late, 0.0)
    tpot, last = (
        np.where(cases.interleaved, np.minimum(mean, np.maximum(full, step)), mean)
        for mean in (step + cases.ranks * prompts * delay / cases.gaps for prompts in (met, 0.5 * others))
    )
    # Where prompts of a cycle take more steps than a request decodes, they fill all steps.
    wait = np.maximum(late * (full - step), (groups - cases.gaps) * full - cases.fixed)
    return BegunTogether(tpot, np.minimum(last, tpot), np.maximum(wait, 0.0))
