"""The update of state that lies off the device, as segments of a step: copies, CPUs, SSDs and kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from simulator.engine.graph import Stream
from simulator.training.data_parallel import OnceAStep
from simulator.training.step_graph.loads import scalar
from simulator.training.step_graph.step import Pass, StreamWork
from simulator.training.step_graph.streams import COMPUTE, FROM_HOST, HOST, STORAGE, TO_HOST
from simulator.training.tiers import Offload

Start = Literal["step", "backward", "finish"]
MOST_UNITS = 32
"""Sub-groups of an update that are tasks of their own; larger numbers change its end by less than 3 %."""

UPDATED = "updated"
"""The segment, without time of its own, in which the routes of an update meet."""


class HostWork(NamedTuple):
    """An update off the device.

    Attributes:
        work: its segments; those of a route (through the host, or through the device) follow each other.
        start: what it starts with: the step, as the update of the step before; the last backward pass; or
            the finish, behind reductions.
        kernels: the device's kernels where they are not part of ``work``: they run behind the step's.
    """

    work: Pass
    start: Start
    kernels: StreamWork | None = None

    def behind(self, others: list[StreamWork]) -> list[StreamWork]:
        """Segments of a finish, then the update, whose routes all start when these have ended."""
        if not self.work:
            return others
        first = len(others)
        ends = (first - 1,) if others else ()
        shifted = [
            replace(segment, after=tuple(first + place for place in segment.after or ()) or ends)
            for segment in self.work
        ]
        inner = {place for segment in self.work for place in segment.after or ()}
        last = tuple(first + place for place in range(len(self.work)) if place not in inner)
        joined = StreamWork(UPDATED, 0.0, COMPUTE, "optimizer", after=last)
        return [*others, *shifted, joined]


def host_work(tiers: Offload, step: OnceAStep) -> HostWork:
    """The update of one rank's state."""
    update = tiers.update(step.owned, step.optimizer)
    early = scalar(tiers.updates("beside_backward")) > 0
    late = scalar(tiers.updates("delayed")) > 0 or scalar(tiers.updates("every")) > 1
    streams, stages = (
        {name: scalar(seconds) for name, seconds in each.items()} for each in (update.streams, update.stages)
    )
    kernels = StreamWork("optimizer", streams["device"], COMPUTE, "optimizer")
    work: list[StreamWork] = []

    def add(name: str, seconds: float, stream: Stream, after: tuple[int, ...]) -> tuple[int, ...]:
        if seconds <= 0:
            return after
        part = "optimizer" if stream is COMPUTE else ""
        work.append(StreamWork(name, seconds, stream, part, after))
        return (len(work) - 1,)

    apart = late or early
    route = add("fetch state", streams["from host"] - stages["from host"], FROM_HOST, ())
    route = route if apart else add("optimizer", streams["device"], COMPUTE, route)
    units = min(max(round(1 / scalar(update.unit)), 1), MOST_UNITS)
    stored = max(stages["ssd"], stages["file system"])
    for _ in range(units):
        after: tuple[int, ...] = ()
        for name, seconds, stream in (
            ("read and write state", stored, STORAGE),
            ("copy gradients", stages["to host"], TO_HOST),
            ("update on the host", stages["cpu"], HOST),
            ("copy parameters", stages["from host"], FROM_HOST),
        ):
            after = add(name, seconds / units, stream, after)
    # Issued last: gradients for the CPUs go first.
    add("store state", streams["to host"] - stages["to host"], TO_HOST, route)
    start: Start = "step" if late else "backward" if early else "finish"
    return HostWork(tuple(work), start, kernels if apart and kernels.seconds > 0 else None)
