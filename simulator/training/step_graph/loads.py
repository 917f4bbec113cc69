"""How busy a collective keeps the links that it crosses, from the costs that time it.

The functions that price a step are linear in what its collectives take. Given a cluster whose collectives
answer with the seconds for which the links of one level are busy, they add up those of the very same calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import PrivateAttr

from hwmodels.cluster import Cluster
from simulator.engine.graph import Stream
from simulator.setting import Setting
from simulator.training.step_graph.step import Segment

NETWORK = "network"

LARGE = 2.0**50
"""Bytes of a message whose latency counts for nothing."""


class Load(NamedTuple):
    """What a communication asks of the links of its rank while it runs alone.

    Alone means without others of its rank: that groups of its kind on one node share NICs is in its time.
    """

    level: str = ""
    share: float = 0.0
    """Part of the bandwidth that the library reaches there: 1 where bytes alone set the time, less where
    latencies do."""


NO_LOAD = Load()


class _Busy(Cluster):
    """A cluster whose collectives return the seconds for which they fill the links of one level.

    A collective counts for the outermost level that it spans, which is the one that limits it.
    """

    _level: int = PrivateAttr(0)

    def collective(
        self,
        operation: str,
        bytes_: ArrayLike,
        size: ArrayLike,
        stride: ArrayLike = 1,
        concurrent: bool = True,
        in_switch: bool = True,
    ) -> NDArray[np.float64]:
        """Return the seconds of the bytes alone; arguments as of ``Cluster.collective``."""
        rate = super().collective(operation, LARGE, size, stride, concurrent, in_switch) / LARGE
        return np.where(self.level_of(size, stride) == self._level, rate * np.asarray(bytes_), 0.0)


class Loads:
    """The load of anything that the cost model prices for one plan."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        names = [*(level.name for level in setting.cluster.levels), NETWORK]
        self._busy: dict[str, Setting] = {}
        for index, name in enumerate(names):
            cluster = _Busy.model_construct(**dict(setting.cluster))
            cluster._level = index
            self._busy[name] = replace(setting, cluster=cluster)

    def of(self, price: Callable[[Setting], ArrayLike]) -> Load:
        """The level that a communication keeps busiest, and how busy.

        Args:
            price: its seconds, linear in those of collectives.
        """
        seconds = _one(price(self._setting))
        if seconds <= 0:
            return NO_LOAD
        busy = {name: _one(price(setting)) for name, setting in self._busy.items()}
        level = max(busy, key=lambda name: busy[name])
        return Load(level, min(busy[level] / seconds, 1.0)) if busy[level] > 0 else NO_LOAD

    def segment(
        self, name: str, price: Callable[[Setting], ArrayLike], stream: Stream, part: str = ""
    ) -> Segment:
        """A communication with its seconds and its load."""
        level, load = self.of(price)
        return Segment(name, _one(price(self._setting)), stream, part, level=level, load=load)


def _one(value: ArrayLike) -> float:
    return float(np.asarray(value).reshape(-1)[0])
