"""Synchronisation policy: how often replicas exchange, in how many fragments, how late, in which format."""

from typing import Literal

from pydantic import Field, model_validator

from core.loading import Strict
from simulator.state.wire import WireName


class Sync(Strict):
    """Local steps of replica groups between their outer exchanges."""

    every: int = Field(1, ge=1, le=2**20, description="inner steps between two outer exchanges")
    fragments: int = Field(
        1, ge=1, le=2**16, description="parts of the model that are exchanged at different steps"
    )
    late: Literal["none", "inner-step", "outer-step"] = Field(
        "none",
        description="what an exchange may run beside: nothing, the next inner step, or all steps up to the "
        "next exchange",
    )
    payload: WireName = Field("fp32", description="format of the exchanged differences")
    outer: Literal["average", "nesterov", "none"] = Field(
        "nesterov", description="outer optimizer; none: replicas never exchange (Branch-Train-Merge)"
    )
    groups: int = Field(
        0, ge=0, le=2**20, description="replica groups that train apart; 0: every data-parallel rank"
    )
    topology: Literal["ring", "tree"] = Field(
        "ring", description="shape of the outer exchange: a ring, or a tree of aggregators"
    )
    link_gbps: float | None = Field(
        None, ge=1e-6, le=1e6, description="Gb/s between two groups; by default the cluster's network"
    )
    latency_s: float = Field(0.0, ge=0, le=60, description="one-way latency between two groups, s")
    window_bytes: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="bytes in flight on a link, in all its connections: it carries no more in one round trip",
    )
    leaves_per_day: float = Field(
        0.0, ge=0, le=1000, description="times a day that a group leaves and another joins in its place"
    )
    blocks_joins: bool = Field(
        False, description="whether all groups wait while one that joins receives the state"
    )
    timeout_s: float = Field(
        60.0,
        ge=0,
        le=86400,
        description="s until an exchange without a group that left is given up and begins again",
    )

    @property
    def apart(self) -> bool:
        """Whether replica groups have an exchange of their own, beside that of gradients inside a group."""
        return self.every > 1 or self.link_bytes_s is not None

    @property
    def link_bytes_s(self) -> float | None:
        """Rate of a link between two groups, B/s, where it is stated: TCP sends a window a round trip."""
        rates = [] if self.link_gbps is None else [self.link_gbps * 1e9 / 8]
        if self.window_bytes is not None and self.latency_s:
            rates.append(self.window_bytes / (2 * self.latency_s))
        return min(rates, default=None)

    @model_validator(mode="after")
    def _spread(self) -> "Sync":
        if self.window_bytes is not None and not self.latency_s:
            raise ValueError("window_bytes: a window limits a link by its round trip; latency_s is 0")
        if self.fragments > 1 and self.outer == "none":
            raise ValueError("fragments: replicas that never exchange have none")
        if self.fragments > self.every:
            raise ValueError(f"fragments: {self.fragments} do not fit into every = {self.every} steps")
        return self
