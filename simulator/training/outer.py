"""Outer exchanges of replica groups that train apart: what they send, and what a step waits for.

Every ``every`` steps the groups average what they changed, fragment by fragment; an exchange may run beside
the next inner step or beside all steps up to the next one (Douillard et al. 2023 and 2025, DiLoCo; Sun et al.
2024, CO2).
"""

from __future__ import annotations

import numpy as np

from core.records import record
from simulator.state.sync import Sync
from simulator.state.wire import WIRE_FORMATS, codec_bytes
from simulator.training.sharding import Sharding

OUTER_BYTES = {"nesterov": 8.0, "average": 4.0, "none": 0.0}
"""Bytes a parameter of the outer optimizer: parameters of the last exchange, and momentum, in 32 bits."""

WEIGHTS = 4.0
"""Bytes a parameter of the weights that a group receives as it joins."""

MOST_LASTS = 50.0
"""Departures of a group in a round from which on no work remains worth counting."""


@record()
class OuterExchange:
    """Outer exchange and update of each plan; arrays of shape (plans,).

    ``seconds`` and ``bytes`` (that a group sends) are those of one whole exchange of all fragments,
    ``joining`` the seconds in which a group that joins receives weights and outer optimizer.
    """

    seconds: np.ndarray
    bytes: np.ndarray
    kernels: np.ndarray
    joining: np.ndarray
    groups: np.ndarray | int
    policies: tuple[Sync | None, ...]
    policy: np.ndarray

    @classmethod
    def of(cls, sharding: Sharding, owned: np.ndarray, unsharded: np.ndarray) -> OuterExchange:
        """The exchange of plans.

        Args:
            sharding: of the plans.
            owned: parameters whose state one device owns, shape (plans,).
            unsharded: parameters of one device before data-parallel sharding, shape (plans,).
        """
        plans, kernels = sharding.plans, sharding.setting.kernels
        syncs = tuple(policy.sync for policy in plans.policies)
        seconds, sent, update, joining = (np.zeros(len(plans)) for _ in range(4))
        for number, sync in enumerate(syncs):
            of_policy = plans.policy == number
            if sync is None or not sync.apart or sync.outer == "none" or not of_policy.any():
                continue
            form = WIRE_FORMATS[sync.payload]
            groups = sharding.replica_groups
            state = unsharded * plans.tensor * plans.pipeline * (WEIGHTS + OUTER_BYTES[sync.outer])
            replica_bytes = unsharded * plans.tensor * plans.pipeline * form.bytes
            around = 2 * (groups - 1) / groups if sync.topology == "ring" else 2 * np.ceil(np.log2(groups))
            hops = 2 * (groups - 1) if sync.topology == "ring" else 2 * np.ceil(np.log2(groups))
            if sync.link_bytes_s is not None:
                took = around * replica_bytes / sync.link_bytes_s + hops * sync.latency_s
                joins = state / sync.link_bytes_s + sync.latency_s
            else:
                apart = np.maximum(plans.devices // groups, 1)
                cluster = sharding.setting.cluster
                took = cluster.collective("all_reduce", owned * form.bytes, groups, apart)
                took = took + hops * sync.latency_s
                # All devices of a group receive their part of the state at once.
                joins = cluster.collective("broadcast", state * owned / replica_bytes * form.bytes, 2, apart)
            coded = kernels.memory_bound(codec_bytes(form, owned, owned)) if form.coded else 0.0
            outer = OUTER_BYTES[sync.outer] + 12.0
            seconds = np.where(of_policy, took + coded, seconds)
            sent = np.where(of_policy, around * replica_bytes, sent)
            update = np.where(of_policy, kernels.memory_bound(owned * outer), update)
            joining = np.where(of_policy, joins, joining)
        return cls(seconds, sent, update, joining, sharding.replica_groups, syncs, plans.policy)

    def exposed(self, step: np.ndarray) -> np.ndarray:
        """Seconds that exchanges and outer updates add to each inner step in the mean, shape (plans,).

        Args:
            step: seconds of an inner step, shape (plans,).
        """
        exposed = np.zeros(len(step))
        for number, sync in enumerate(self.policies):
            if sync is None or not sync.apart:
                continue
            if sync.late == "none":
                unhidden = self.seconds
            elif sync.late == "inner-step":
                unhidden = sync.fragments * np.maximum(self.seconds / sync.fragments - step, 0.0)
            else:
                unhidden = np.maximum(self.seconds - sync.every * step, 0.0)
            added = (unhidden + self.kernels) / sync.every
            if sync.leaves_per_day:
                added = added + self._departures(sync, step, step + added)
            exposed = np.where(self.policy == number, added, exposed)
        return exposed

    def _departures(self, sync: Sync, step: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Seconds a step that groups cost which leave and join; ``mean`` is a step with its exchange.

        A group that leaves takes with it what it trained since the last exchange: of departures at rate ``r``
        in rounds of ``t`` seconds a share ``r t / (exp(r t) - 1)`` of the work remains. An exchange that a
        group leaves is given up after the time-out and begins again, with the others. Joins at exchanges cost
        the others nothing, unless they wait.
        """
        rate = sync.leaves_per_day / 86400
        lasts = rate * sync.every * mean
        remains = np.where(lasts > 0, lasts / np.expm1(np.clip(lasts, 1e-12, MOST_LASTS)), 1.0)
        left = 1 - np.exp(-self.groups * rate * self.seconds)
        waits = left * (self.seconds + sync.timeout_s)
        if sync.blocks_joins:
            waits = waits + (1 - np.exp(-self.groups * lasts)) * self.joining
        return step * (1 / remains - 1) + waits / sync.every


def outer_seconds(
    sharding: Sharding, owned: np.ndarray, unsharded: np.ndarray, step: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Exposed and all seconds of outer exchanges, in the mean of the inner steps, shape (plans,).

    Args:
        sharding, owned, unsharded: as in ``OuterExchange.of``.
        step: seconds of an inner step, shape (plans,).
    """
    exchange = OuterExchange.of(sharding, owned, unsharded)
    every = sharding.by_policy(lambda policy: policy.sync.every if policy.sync else 1)
    return exchange.exposed(step), exchange.seconds / every


def synchronised_apart(sharding: Sharding) -> bool:
    """Whether any plan lets replica groups train apart."""
    return any(policy.sync is not None and policy.sync.apart for policy in sharding.plans.policies)


def outer_bytes(sharding: Sharding) -> np.ndarray:
    """Bytes a parameter that the outer optimizer keeps, shape (plans,)."""

    def of(sync: Sync | None) -> float:
        return OUTER_BYTES[sync.outer] if sync is not None and sync.apart else 0.0

    return sharding.by_policy(lambda policy: of(policy.sync))
