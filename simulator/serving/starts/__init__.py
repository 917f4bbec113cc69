"""Sources of a starting replica's weights by name, and its stages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from simulator.serving.question.policies import make_policy
from simulator.serving.question.start import StagedStart
from simulator.serving.starts.base import Loaded, WeightSource
from simulator.serving.starts.disk import AsleepOnDisk, Disk
from simulator.serving.starts.host import AsleepInHost, Host
from simulator.serving.starts.remote import Fork, Peer, Remote

starts: Mapping[str, type[WeightSource]] = MappingProxyType(
    {kind.name: kind for kind in (Disk, Host, Remote, Peer, Fork, AsleepInHost, AsleepOnDisk)}
)


def make_source(start: StagedStart, where: str) -> WeightSource:
    """The source of weights that a start names, with its parameters; raises as `make_policy`."""
    return make_policy(
        "source of weights", starts, start.from_, start.options, f"{where}.from", f"{where}.options"
    )


def stages(start: StagedStart, source: WeightSource, replica: Loaded, running: bool) -> dict[str, float]:
    """Seconds of a start by stage.

    Args:
        start: seconds of the stages around the weights.
        source: of the weights.
        replica: what starts.
        running: another replica of the pool runs, from which weights can be read.
    """
    if source.running and not running:
        source = starts[source.instead]()
    load = source.load_s(replica)
    if source.asleep:
        return {"load": load}
    return {
        "allocate": start.allocate,
        "engine": start.engine,
        "load": load,
        "compile": start.compile,
        "warm": start.warm,
    }


__all__ = ["Loaded", "WeightSource", "make_source", "stages", "starts"]
