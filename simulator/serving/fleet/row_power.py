"""Power of a row of replicas under a budget: telemetry, delayed clocks, and power brakes."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.serving.power_policies import make_power_policy
from simulator.serving.power_policies.base import Clocks
from simulator.serving.steps.costs import engine_of, replica_costs
from simulator.serving.steps.step_times import StepTimes

if TYPE_CHECKING:
    from simulator.serving.fleet.fleet import Fleet
    from simulator.serving.fleet.member import Member
    from simulator.serving.setting import ServingSetting


@dataclass(frozen=True)
class RowPower:
    """Power that a row drew.

    Attributes:
        policy: name.
        servers, provisioned: replicas of the row, and replicas for which its budget was made.
        budget_w: of the row.
        peak_w, mean_w: over the readings.
        rise: largest rise between two readings, as a share of the budget.
        brakes: number of times that the power brake was requested.
        capped, braked: share of the time under a cap of any level, and under the brake.
    """

    policy: str
    servers: int
    provisioned: int
    budget_w: float
    peak_w: float
    mean_w: float
    rise: float
    brakes: int
    capped: float
    braked: float

    @property
    def added(self) -> float:
        """Servers beyond those that the power was provisioned for, as a share of them."""
        return self.servers / self.provisioned - 1.0


class RowSupervisor:
    """Reads a fleet's power, asks its policy, and sets the clocks of its replicas.

    A cap takes effect ``actuation`` seconds after its request, a brake after ``brake_after``. The brake
    is lifted when the power has fallen a tenth below the budget. A clock changes at the end of a step.

    Args:
        fleet: whose replicas share the row.

    Raises:
        InputError: an unknown policy, a wrong parameter, or a clock that the devices do not have.
    """

    def __init__(self, fleet: Fleet) -> None:
        setting = fleet.setting
        where = f"{setting.where}: deployment"
        deployment = setting.deployment
        self.policy = make_power_policy(
            deployment.power_policy or "", deployment.power_policy_options, f"{where}.power_policy"
        )
        self.fleet = fleet
        pool, cluster = setting.pools[0].pool, setting.pools[0].cluster
        devices = pool.devices
        server_w = self.policy.server_w or devices * cluster.device.tdp_watts + (
            devices / cluster.devices_per_node * cluster.host_watts
        )
        self.budget_w = self.policy.servers * server_w
        self._tables: dict[tuple[str, float | None], StepTimes] = {}
        clocks = {clock for pair in self.policy.clocks for clock in pair} | {self.policy.brake_mhz}
        for served in setting.pools:
            for clock in clocks:
                self._tables[served.name, clock] = _steps_at(setting, served.name, clock)
        self._applied: Clocks = self.policy.clocks[0]
        self._braked = False
        self._watts: list[float] = []
        self._capped_s = self._braked_s = 0.0
        self.brakes = 0

    def run(self) -> Generator[Any, Any, Any]:
        """Process on the fleet's clock, until all requests have ended."""
        clock, policy, level = self.fleet.clock, self.policy, 0
        braking = False
        while not self.fleet.ended:
            yield clock.timeout(policy.telemetry)
            for member in self.fleet.members:
                self.fleet.advance(member, clock.now)
            watts = sum(self._drawn(member) for member in self.fleet.members)
            self._watts.append(watts)
            used = watts / self.budget_w
            self._capped_s += policy.telemetry * (self._applied != policy.clocks[0])
            self._braked_s += policy.telemetry * self._braked
            next_level = policy.level(level, used)
            if next_level != level:
                level = next_level
                clock.process(self._later(policy.actuation, policy.clocks[next_level]))
            if used > 1.0 and not braking:
                braking = True
                self.brakes += 1
                clock.process(self._later(policy.brake_after, None))
            elif braking and self._braked and used < 0.9:
                braking = self._braked = False
                self._set(self._applied)

    def _later(self, delay: float, clocks: Clocks | None) -> Generator[Any, Any, Any]:
        """Set clocks after a delay, s; None: the clocks of the brake."""
        yield self.fleet.clock.timeout(delay)
        if clocks is None:
            self._braked = True
            self._set((self.policy.brake_mhz, self.policy.brake_mhz))
        else:
            self._applied = clocks
            if not self._braked:
                self._set(clocks)

    def _set(self, clocks: Clocks) -> None:
        members = self.fleet.members
        high = round((1.0 - self.policy.low_share) * len(members))
        for member in members:
            steps = self._tables[member.pool.name, clocks[member.index < high]]
            replica = member.replica
            if replica.steps is not steps:
                replica.advance(self.fleet.clock.now)
                member.meter.use(steps)
                replica.use(steps, self.fleet.clock.now)
                self.fleet.touch(member)

    def _drawn(self, member: Member) -> float:
        """Power of a replica now, W."""
        replica = member.replica
        batch = replica.under_way
        if batch is None:
            return member.pool.costs.idle_watts
        tokens, decodes, kv_tokens, seconds = (np.asarray(value, dtype=np.float64) for value in batch)
        return float(replica.steps.watts(tokens, decodes, kv_tokens, seconds))

    def figures(self) -> RowPower:
        """Power that the row drew so far."""
        watts = np.array(self._watts or [0.0])
        seconds = max(len(self._watts) * self.policy.telemetry, 1e-9)
        return RowPower(
            policy=self.policy.name,
            servers=len(self.fleet.members),
            provisioned=self.policy.servers,
            budget_w=self.budget_w,
            peak_w=float(watts.max()),
            mean_w=float(watts.mean()),
            rise=float(np.diff(watts).max(initial=0.0)) / self.budget_w,
            brakes=self.brakes,
            capped=self._capped_s / seconds,
            braked=self._braked_s / seconds,
        )


def _steps_at(setting: ServingSetting, name: str, clock_mhz: float | None) -> StepTimes:
    """Step times of a pool's replicas at a clock, MHz; None: at the pool's own clock."""
    pool = next(pool for pool in setting.pools if pool.name == name)
    if clock_mhz is None:
        return pool.costs.steps
    engine = engine_of(pool.pool.engine, setting.folder, f"{setting.where}: deployment.engine")
    slow = pool.pool.model_copy(update={"clock_mhz": clock_mhz})
    return replica_costs(pool.model, pool.cluster, slow, pool.options, engine).steps
