"""Every plan that a search scored, predicted block by block in the order of the objective."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.training.prediction import Prediction
from simulator.plan import Plans, concatenate
from simulator.setting import Setting

BLOCK = 1 << 13
"""Plans predicted at once, breakdowns included."""


class ScoredPlans:
    """Collects the blocks that ``search`` hands to ``keep``."""

    def __init__(self) -> None:
        self._plans: list[Plans] = []
        self._values: list[np.ndarray] = []

    def __len__(self) -> int:
        return sum(map(len, self._plans))

    def add(self, plans: Plans, values: np.ndarray) -> None:
        """Keep a block of plans and the figure that ranks them, shape (plans,)."""
        self._plans.append(plans)
        self._values.append(values.astype(np.float32))

    def predictions(self, setting: Setting) -> Iterator[Prediction]:
        """Predictions of all plans, the best first; equal plans in the order of the search."""
        if not self._plans:
            return
        plans = concatenate(self._plans)
        order = np.argsort(np.concatenate(self._values), kind="stable")
        for start in range(0, len(order), BLOCK):
            yield Prediction.of(setting, plans.take(order[start : start + BLOCK]))
