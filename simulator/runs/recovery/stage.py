"""What every stage of a recovery states: how long it takes after a fault of a kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from core.loading import Strict
from simulator.faults import FaultList, Notice


class RecoveryStage(Strict):
    """Base of stages."""

    HELP: ClassVar[str] = ""

    @abstractmethod
    def mean(self, notice: Notice, nodes: int, devices: int) -> float:
        """Mean seconds after a fault that shows as ``notice`` and takes ``nodes`` nodes from ``devices``."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> NDArray[np.float64]:
        """Seconds after each of the faults."""

    def assumed(self, devices: int) -> str:
        """What is assumed where the scenario states nothing; empty where it does."""
        return ""
