"""Links of replicas and nodes that reads, writes, swaps and moves of state share, max-min fairly.

A lane is one direction of a link: a replica's host link, a node's NICs, a node's SSDs. A flow crosses one or
more lanes. Rates are those of the training engine (`simulator.engine.flows`), computed again whenever a flow
begins or ends. A step must know its end when it starts, so `SharedLinks.send` returns the end that holds
if no other flow joins; a flow that joins later takes its share of what is left.
"""

from __future__ import annotations

from math import inf

from simulator.engine.flows import fair_rates


class SharedLane:
    """One direction of a link.

    Args:
        name: for reports.
        rate: B/s.
    """

    __slots__ = ("bytes", "name", "rate", "users")

    def __init__(self, name: str, rate: float) -> None:
        self.name, self.rate = name, rate
        self.bytes = 0.0
        """Bytes sent over it since the start of the run."""
        self.users = 0
        """Flows that cross it now."""


Crossed = tuple[SharedLane, ...]
"""Lanes that a flow crosses."""


class SharedFlow:
    """Bytes under way over lanes."""

    __slots__ = ("end_s", "left", "route")

    def __init__(self, route: Crossed, bytes_: float) -> None:
        self.route, self.left = route, bytes_
        self.end_s = inf
        """When it ended, s; inf while it runs."""


class SharedLinks:
    """Flows on shared lanes, and the time to which they have run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.flows: list[SharedFlow] = []

    def send(self, now: float, bytes_: float, route: Crossed) -> tuple[SharedFlow, float]:
        """Begin a flow; returns it and its end if no other joins, s.

        Args:
            now: seconds; a time before the last flow's begin counts as that.
            bytes_: of the flow, B.
            route: lanes that it crosses; none: it ends at once.
        """
        self.run(now)
        flow = SharedFlow(route, bytes_)
        if not route or bytes_ <= 0.0:
            flow.left, flow.end_s = 0.0, self.now
            return flow, self.now
        self.flows.append(flow)
        for lane in route:
            lane.bytes += bytes_
            lane.users += 1
        return flow, self.end(flow)

    def end(self, flow: SharedFlow) -> float:
        """When a flow ends if no other joins, s, or has ended."""
        if flow.left <= 0.0:
            return flow.end_s
        if all(lane.users == 1 for lane in flow.route):
            return self.now + flow.left / min(lane.rate for lane in flow.route)
        others = [(other, other.left) for other in self.flows]
        time, flows = self.now, [other for other, _ in others]
        while flow.left > 0.0:
            step = self._until_next(flows)
            time += step
            flows = self._moved(flows, step)
        for other, left in others:
            other.left = left
        return time

    def run(self, now: float) -> None:
        """Let all flows run to a time, s."""
        while self.flows and self.now < now:
            step = min(self._until_next(self.flows), now - self.now)
            before = self.flows
            self.flows = self._moved(before, step)
            self.now += step
            for flow in before:
                if flow.left <= 0.0:
                    flow.end_s = self.now
                    for lane in flow.route:
                        lane.users -= 1
        self.now = max(self.now, now)

    def _rates(self, flows: list[SharedFlow]) -> list[float]:
        lanes = {id(lane): lane.rate for flow in flows for lane in flow.route}
        return fair_rates([[id(lane) for lane in flow.route] for flow in flows], [inf] * len(flows), lanes)

    def _until_next(self, flows: list[SharedFlow]) -> float:
        """Seconds until the next of the flows ends."""
        return min(flow.left / rate for flow, rate in zip(flows, self._rates(flows), strict=True))

    def _moved(self, flows: list[SharedFlow], seconds: float) -> list[SharedFlow]:
        """Let flows run at their present rates; returns those that go on."""
        for flow, rate in zip(flows, self._rates(flows), strict=True):
            left = flow.left - rate * seconds
            flow.left = left if left > 1e-9 * rate * max(seconds, 1e-9) else 0.0
        return [flow for flow in flows if flow.left > 0.0]
