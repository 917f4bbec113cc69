"""Replicas by the requests of the last interval and a target of time per token, as Dynamo's SLA planner."""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from pydantic import Field, model_validator

from core.quantities import Few
from simulator.serving.scalers.base import EndedRequests, Scaler


class DynamoSlaPlanner(Scaler):
    """As many workers as the next interval's requests need at a replica's profile.

    Prefill workers: prompt tokens a second over those of a worker that computes one prompt at a time, scaled
    down where the measured TTFT is below the profile's. Decode workers: output tokens a second over those of
    the largest batch whose step takes ``itl``, which is divided by measured over profiled time per token. The
    next interval has the requests of the last one (the planner's predictor `constant`). The profile is the
    replica's own step times.
    """

    name: ClassVar[str] = "dynamo-sla"
    rule: ClassVar[str] = (
        "workers for the tokens of the last interval at prefill speed and at a time per token"
    )
    source: ClassVar[str] = "ai-dynamo/dynamo, docs/architecture/sla_planner.md and planner defaults"
    reads_requests: ClassVar[bool] = True
    interval: float = Field(180.0, ge=0.1, le=1e6, description="seconds between two adjustments")
    itl: float = Field(0.05, gt=0, le=60, description="target of the time per output token, s")
    corrects: bool = Field(default=True, description="whether measured latencies correct the profile")
    least: Few = Field(1, description="fewest replicas")
    most: Few = Field(8, description="most replicas")

    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """See `Scaler.target_replicas`: without requests, as many as there are."""
        return replicas

    def by_requests(self, seen: EndedRequests) -> int:
        """See `Scaler.by_requests`."""
        if not seen.rate:
            return seen.size
        needed = self._prefills(seen) if seen.role == "prefill" else self._decodes(seen)
        return min(max(ceil(needed), self.least), self.most)

    def _prefills(self, seen: EndedRequests) -> float:
        alone_s = seen.step_s(((round(seen.prompt), 0),), 0, 0)
        correction = min(seen.ttft_s / alone_s, 1.0) if self.corrects else 1.0
        return seen.rate * alone_s * correction

    def _decodes(self, seen: EndedRequests) -> float:
        context = seen.prompt + 0.5 * seen.output

        def step_s(batch: int) -> float:
            return seen.step_s((), batch, round(batch * context))

        target = self.itl
        if self.corrects:
            beside = round(seen.rate * seen.output * seen.tpot_s / max(seen.size, 1))
            target *= step_s(min(max(beside, 1), seen.slots)) / seen.tpot_s
        batch, above = 1, seen.slots + 1
        while above - batch > 1:
            middle = (batch + above) // 2
            batch, above = (middle, above) if step_s(middle) <= target else (batch, middle)
        return seen.rate * seen.output * step_s(batch) / batch

    @model_validator(mode="after")
    def _check(self) -> DynamoSlaPlanner:
        if self.least > self.most:
            raise ValueError(f"least ({self.least}) is above most ({self.most})")
        if self.most < 2:
            raise ValueError("most: a planner needs room for a second replica, found 1")
        return self
