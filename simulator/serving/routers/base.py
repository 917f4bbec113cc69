"""Interface of routers: pick the replica of a request."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence as Many
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from core.loading import Strict
from simulator.serving.routers.record import SentPrefixes
from simulator.serving.workload.request import Request

Column = NDArray[Any]
"""A number of each replica, shape (replicas,)."""


class Target(Protocol):
    """A replica as a router sees it."""

    @property
    def index(self) -> int:
        """Its number among all replicas of the run."""
        ...

    @property
    def load(self) -> int:
        """Sequences waiting and running."""
        ...

    @property
    def queue(self) -> int:
        """Sequences waiting."""
        ...

    @property
    def group(self) -> str:
        """Name of its pool."""
        ...

    @property
    def decodes(self) -> bool:
        """Whether it runs outputs alone."""
        ...

    def cached(self, request: Request) -> int:
        """Tokens of the request's prompt in the replica's prefix cache."""
        ...

    def in_memory(self, request: Request) -> int:
        """Tokens of the request's prompt in the replica's device memory, tiers left out."""
        ...

    @property
    def free_blocks(self) -> int:
        """Free KV blocks, less the demand of waiting sequences."""
        ...

    @property
    def kv_use(self) -> float:
        """Share of KV blocks in use."""
        ...

    @property
    def pending(self) -> int:
        """Prompt tokens of its requests that no ended step has computed and no cache holds."""
        ...

    @property
    def used_tokens(self) -> int:
        """Tokens that its KV blocks in use hold."""
        ...

    def seconds(self, request: Request) -> tuple[float, float]:
        """Seconds that the request would wait and compute on the replica's devices with its present batch."""
        ...

    def holds(self, request: Request) -> bool:
        """Whether the replica holds the request's adapter."""
        ...


class Targets:
    """Replicas that take requests: their numbers as arrays, which routers read in place of every replica.

    This class asks each replica at each read. A fleet keeps the arrays up to date as states change.

    Args:
        members: replicas, in the order of the arrays.
        record: what the router has sent to which replica; by default nothing.
    """

    fewest: ClassVar[int] = 16
    """Replicas from which arrays cost less than asking each."""

    def __init__(self, members: Many[Target], record: SentPrefixes | None = None) -> None:
        self.members = members
        self.record = SentPrefixes(1, 1) if record is None else record
        self.few = len(members) < self.fewest

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Target:
        return self.members[index]

    def column(self, name: str) -> Column:
        """A property of `Target` of all replicas; the caller does not change the array."""
        return np.array([getattr(member, name) for member in self.members])

    def cached(self, request: Request) -> Column:
        """`Target.cached` of all replicas, tokens."""
        return np.array([member.cached(request) for member in self.members])

    def in_memory(self, request: Request) -> Column:
        """`Target.in_memory` of all replicas, tokens."""
        return np.array([member.in_memory(request) for member in self.members])

    def sent(self, request: Request) -> Column:
        """Leading tokens of a prompt that the router has sent to each replica before."""
        return self.record.tokens(request, self._indices)

    @property
    def cold_order(self) -> Column:
        """Ranks of the replicas by their last prompt of which nothing had been sent before, the oldest 0."""
        return self.record.cold_order(self._indices)

    @cached_property
    def _indices(self) -> list[int]:
        return [member.index for member in self.members]

    def seconds(self, request: Request) -> tuple[Column, Column]:
        """`Target.seconds` of all replicas: waits and computations, s."""
        waits, computations = zip(*(member.seconds(request) for member in self.members), strict=True)
        return np.array(waits), np.array(computations)

    @cached_property
    def groups(self) -> tuple[list[str], Column]:
        """Names of the pools, and the index of each replica's pool among them."""
        names = list(dict.fromkeys(member.group for member in self.members))
        return names, np.array([names.index(member.group) for member in self.members])

    def holders(self, request: Request) -> Column:
        """Indices of the replicas that hold the request's adapter, ascending, shape (holders,)."""
        return np.flatnonzero([member.holds(request) for member in self.members])


class Router(Strict):
    """One policy. Its fields are its parameters (`router_options`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        looks: whether it reads the state of replicas; they are then advanced before it is called.
        reads_kv: whether it reads their KV blocks, which grow inside a stretch of steps; they are then
            counted up to the call.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    looks: ClassVar[bool] = True
    reads_kv: ClassVar[bool] = False

    @property
    def records(self) -> bool:
        """Whether it reads what it has sent to which replica."""
        return False

    @property
    def added(self) -> int:
        """Most tokens that the router adds to a prompt; where it adds none, `sent` is not asked."""
        return 0

    def sent(self, request: Request, target: Target) -> Request:
        """The request as the picked replica gets it."""
        return request

    @abstractmethod
    def pick(self, request: Request, targets: Targets, turn: int, random: np.random.Generator) -> int:
        """Return the index of the replica that takes a request.

        Args:
            request: request to route.
            targets: replicas that take requests.
            turn: number of requests routed before.
            random: generator for policies that draw.
        """
