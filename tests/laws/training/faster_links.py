"""No plan is slower for faster NICs, faster links, or less latency of either."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwmodels.cluster import Cluster
from simulator.training import step_time
from tests.laws.answers import ROUNDING
from tests.laws.batches import batch, batches, none_slower, steps_on
from tests.laws.questions import Question, strategy

NUMBER = 14
QUESTIONS = strategy(batches)
CI = 8


def faster(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """The cluster with faster links, and with links of less latency."""
    network, levels = cluster.network, cluster.levels

    def changed(**parts: object) -> Cluster:
        return Cluster.model_validate({**dict(cluster), **parts})

    for factor in (1.25, 4.0, 100.0):
        nics = network.model_copy(update={"nic_gbps": factor * network.nic_gbps})
        yield f"NICs x{factor:g}", changed(network=nics)
        wider = [level.model_copy(update={"bandwidth": factor * level.bandwidth}) for level in levels]
        yield f"links x{factor:g}", changed(levels=wider)
    near = network.model_copy(update={"latency_s": network.latency / 4})
    yield "a quarter of the network's latency", changed(network=near)
    quick = [level.model_copy(update={"latency_s": level.latency / 4}) for level in levels]
    yield "a quarter of the links' latency", changed(levels=quick)


def check(question: Question) -> None:
    """Ask every plan of a sample again on better links."""
    setting, plans = batch(question)
    base = step_time(setting, plans)
    allowed = np.full(len(plans), ROUNDING)
    for what, cluster in faster(setting.cluster):
        none_slower(steps_on(setting, plans, lambda _, new=cluster: new), base, allowed, plans, what)
