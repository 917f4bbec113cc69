"""Counts of a step that time and memory share."""

from __future__ import annotations

import numpy as np

from simulator.plan import Plans
from simulator.setting import Setting


def micro_batches(setting: Setting, plans: Plans) -> np.ndarray:
    """Micro batches of one replica in a step, shape (plans,)."""
    return setting.training.micro_batches(plans.data, plans.micro_batch).astype(float)
