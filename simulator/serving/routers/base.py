"""Interface of routers: pick the replica of a request."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence as Many
from typing import ClassVar, Protocol

import numpy as np

from core.loading import Strict
from simulator.serving.workload.request import Request


class Target(Protocol):
    """A replica as a router sees it."""

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
        """Prompt tokens of its requests that no step has computed and no cache holds."""
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
    def added(self) -> int:
        """Most tokens that the router adds to a prompt; where it adds none, `sent` is not asked."""
        return 0

    def sent(self, request: Request, target: Target) -> Request:
        """The request as the picked replica gets it."""
        return request

    @abstractmethod
    def pick(self, request: Request, targets: Many[Target], turn: int, random: np.random.Generator) -> int:
        """Return the index of the replica that takes a request.

        Args:
            request: request to route.
            targets: replicas that take requests.
            turn: number of requests routed before.
            random: generator for policies that draw.
        """
