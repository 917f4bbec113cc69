"""Steps over documents of unequal length: how long a pipeline waits for its longer micro batches."""

from __future__ import annotations

import numpy as np

from simulator.layout.stages import FIRST, LAST
from simulator.plan import Plans
from simulator.schedules import get_schedule
from simulator.schedules.walk import stretched
from simulator.setting import Setting

ONCE_A_STEP = "optimizer", "gradients", "parameters", "sync"
"""Parts of a step that do not depend on its documents."""

STEPS = 10
"""Steps of 1 / STEPS, in which times of stages are told apart."""


def late_step(setting: Setting, plans: Plans, seconds: dict[str, np.ndarray]) -> np.ndarray:
    """The 95th percentile of steps, s, shape (plans,): passes of the slowest replica vary, the rest does not.

    Args:
        setting: inputs that all plans share.
        plans: the plans.
        seconds: the mean step by part, each of shape (plans,).
    """
    varying = [part for name, part in seconds.items() if name not in ONCE_A_STEP]
    unequal, mean = setting.micro_batches(plans), sum(seconds.values(), np.zeros(len(plans)))
    late = 0.0 if unequal is None else unequal.late - 1.0
    return mean + late * sum(varying, np.zeros(len(plans)))


def uneven(setting: Setting, plans: Plans, passes: np.ndarray) -> np.ndarray | float:
    """Makespan of unequal micro batches over that of equal ones, shape (plans,); 1 where all are equal.

    The order of passes is walked with the micro batches of the slowest replica of a usual step.

    Args:
        setting: inputs that all plans share.
        plans: the plans.
        passes: seconds of the mean micro batch on each class of stage, shape (classes, plans).
    """
    unequal = setting.micro_batches(plans)
    if unequal is None:
        return 1.0
    stretch = np.ones(len(plans))
    middle = np.where(
        plans.pipeline > 2, passes[FIRST + 1 : LAST].max(axis=0), passes[[FIRST, LAST]].min(axis=0)
    )
    ends = np.rint(STEPS * passes[[FIRST, LAST]] / np.where(middle > 0, middle, passes[FIRST])).astype(
        np.int64
    )
    for name, of_schedule in plans.by_schedule:
        columns = plans.pipeline, plans.virtual_pipeline, plans.data, plans.micro_batch, plans.context, *ends
        shapes = np.stack([column[of_schedule] for column in columns]).astype(np.int64)
        kinds, places, inverse = np.unique(shapes, axis=1, return_index=True, return_inverse=True)
        numbers = np.arange(len(plans))[of_schedule][places]
        values = [
            stretched(
                get_schedule(name), p, v, setting.paces(plans.plan(number)), (first / STEPS, last / STEPS)
            )
            for number, (p, v, *_, first, last) in zip(numbers.tolist(), kinds.T.tolist(), strict=True)
        ]
        stretch[of_schedule] = np.array(values)[inverse.reshape(-1)]
    return stretch * unequal.stretch
