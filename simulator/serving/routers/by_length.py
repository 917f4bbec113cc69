"""Routing by lengths: groups of replicas take given shares of buckets of prompt and output lengths."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from core.loading import Strict
from core.quantities import Few, Tokens
from simulator.serving.routers.base import Router, Targets
from simulator.serving.workload.request import Request


class LengthBucket(Strict):
    """Requests whose prompt lengths lie between two powers of two, and whose output lengths do."""

    prompt: Tokens
    output: Tokens
    shares: list[Annotated[float, Field(ge=0, le=1)]] = Field(min_length=1)
    decode_shares: list[Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=list)


class ByLength(Router):
    """Draws a group of replicas by the bucket's shares; the group's least loaded replica takes the request.

    The router knows the output length, as Mélange's allocation assumes; a real one has an estimate.
    """

    name: ClassVar[str] = "by-length"
    rule: ClassVar[str] = "shares of length buckets to groups of replicas, the least loaded of a group"
    source: ClassVar[str] = "Griggs et al., Mélange, arXiv:2404.14527"
    groups: list[Few] = Field(min_length=1, description="replicas of each group, in the order of the pools")
    decode_groups: list[Few] = Field(
        default_factory=list, description="replicas of each group of decode pools, in the order of the pools"
    )
    buckets: list[LengthBucket] = Field(
        min_length=1,
        description="buckets, each with a `prompt` and an `output` length in it, and the groups' `shares` "
        "(`decode_shares` of decode pools)",
    )

    @cached_property
    def _known(self) -> dict[tuple[int, int], tuple[float, ...]]:
        return {
            (bucket.prompt.bit_length(), bucket.output.bit_length()): tuple(np.cumsum(bucket.shares))
            for bucket in self.buckets
        }

    @cached_property
    def _decode(self) -> ByLength:
        """The same policy among decode replicas: alike groups where no shares are given."""
        shares = [
            bucket.model_copy(update={"shares": bucket.decode_shares})
            for bucket in self.buckets
            if sum(bucket.decode_shares) > 0
        ]
        return self.model_copy(update={"groups": self.decode_groups, "decode_groups": [], "buckets": shares})

    @cached_property
    def _ends(self) -> list[int]:
        return [int(end) for end in np.cumsum(self.groups)]

    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """See `Router.pick`; a request outside all buckets uses the nearest bucket."""
        if self.decode_groups and targets[0].decodes:
            return self._decode.pick(request, targets, turn, random)
        size = request.prompt.bit_length(), request.output.bit_length()
        if size not in self._known:
            size = min(self._known, key=lambda bucket: abs(bucket[0] - size[0]) + abs(bucket[1] - size[1]))
        draw, shares = float(random.random()) * self._known[size][-1], self._known[size]
        group = next(index for index, end in enumerate(shares) if draw < end)
        end = min(self._ends[group], len(targets))
        first = min(self._ends[group] - self.groups[group], end - 1)
        loads = targets.column("load")[first:end] + 3 * targets.column("queue")[first:end]
        return first + int(loads.argmin())
