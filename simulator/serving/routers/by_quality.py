"""Routing between pools of different models by the quality that their answers are known to have."""

from __future__ import annotations

from functools import cached_property
from math import sqrt
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, model_validator

from core.quantities import NotNegative, Tokens
from simulator.serving.routers.base import Router, Target, Targets
from simulator.serving.workload.request import Request

Share = Annotated[float, Field(ge=0, le=1)]
GOLDEN = (sqrt(5.0) - 1.0) / 2.0
"""Multiples of it fill the interval from 0 to 1 evenly."""


class ByQuality(Router):
    """The replica with the best quality for a request's class, less a price of its pool and of its queue.

    Quality is an input: a table of pools by classes of requests, as a predictor knows it (Tryage, Model-SAT).
    Classes come in the proportion of ``classes``, evenly in the order of requests. ``examples`` are tokens of
    retrieved answers that a pool's prompts get (IC-Cache), whose effect on quality the table states.
    """

    name: ClassVar[str] = "by-quality"
    rule: ClassVar[str] = "best known quality of the request's class, less prices of the pool and of its load"
    source: ClassVar[str] = "Tryage (arXiv 2308.11601), Model-SAT (2502.17282), IC-Cache (2501.12689)"
    quality: dict[str, Annotated[list[Share], Field(min_length=1)]] = Field(
        min_length=1, description="by pool, the quality of its answers to requests of class 1, 2, ..."
    )
    classes: list[NotNegative] = Field(
        default_factory=lambda: [1.0], min_length=1, description="how often requests are of class 1, 2, ..."
    )
    price: dict[str, NotNegative] = Field(
        default_factory=dict, description="by pool, the quality that its cost is worth; 0 where left out"
    )
    load: float = Field(
        default=0.0, ge=0, le=1, description="quality that a sequence waiting on the replica is worth"
    )
    examples: dict[str, Tokens] = Field(
        default_factory=dict, description="by pool, tokens of examples that its prompts get"
    )

    @model_validator(mode="after")
    def _one_quality_a_class(self) -> ByQuality:
        for pool, qualities in self.quality.items():
            if len(qualities) != len(self.classes):
                raise ValueError(f"quality.{pool}: {len(qualities)} values for {len(self.classes)} `classes`")
        for name in ("price", "examples"):
            if unknown := sorted(getattr(self, name).keys() - self.quality.keys()):
                raise ValueError(f"{name}: {unknown[0]!r} has no `quality`; known: {', '.join(self.quality)}")
        if not sum(self.classes):
            raise ValueError("`classes` are all zero")
        return self

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.classes) / sum(self.classes)

    @property
    def added(self) -> int:
        """See `Router.added`."""
        return max(self.examples.values(), default=0)

    def class_of(self, serials: np.ndarray) -> np.ndarray:
        """Numbers of the classes of requests, from 0."""
        return np.searchsorted(self._ends, np.asarray(serials) * GOLDEN % 1.0, side="right")

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`; of equal replicas the one with the fewest sequences."""
        kind = int(self.class_of(np.array(request.serial)))
        pools, pool = targets.groups
        net = np.array([self.quality[name][kind] - self.price.get(name, 0.0) for name in pools])
        worth = net[pool] - self.load * targets.column("queue")
        best = np.flatnonzero(worth == worth.max())
        return int(best[targets.column("load")[best].argmin()])

    def sent(self, request: Request, target: Target) -> Request:
        """See `Router.sent`."""
        more = self.examples.get(target.group, 0)
        return request._replace(prompt=request.prompt + more) if more else request
