"""Every layout of a diffusion model on some devices, and the fewest replicas that carry a load in time.

A layout is a product of degrees; with the largest batch it has one capacity. Weights that fit no device are
divided among those of the layout, or come from the host, layer by layer. From the fewest replicas whose
capacity exceeds the rate on, a run of the load gives the share of prompts within the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from core.errors import InfeasibleError, InputError
from hwmodels.cluster import Cluster
from simulator.diffusion.layout import Layout
from simulator.diffusion.load import DiffusionLoad
from simulator.diffusion.request import DiffusionRequest, predict_request
from simulator.diffusion.scenario import check_layout
from simulator.diffusion.serving import LoadResult, run_load
from simulator.diffusion.setting import DiffusionSetting

BATCHES = (1, 2, 4, 8, 16)
"""Most prompts of a batch that are tried."""
MORE_REPLICAS = 4
"""Replicas beyond the fewest whose capacity exceeds the rate."""


@dataclass(frozen=True)
class DiffusionPlan:
    """A layout with its replicas.

    Attributes:
        request: a batch of the largest size on one replica.
        replicas: copies.
        result: run of the load on them.
        usd: list price of one image or video at the load's rate.
    """

    request: DiffusionRequest
    replicas: int
    result: LoadResult
    usd: float

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.request.setting.devices

    @property
    def p90_s(self) -> float:
        """Latency that nine of ten prompts stay below."""
        ordered = sorted(self.result.latencies_s)
        return float(ordered[math.ceil(0.9 * len(ordered)) - 1])


@dataclass(frozen=True)
class DiffusionSearch:
    """Plans that carry the load, the cheapest first, and the removed ones by reason."""

    plans: tuple[DiffusionPlan, ...]
    tried: int
    removed: dict[str, int]
    nearest: DiffusionPlan | None
    """The plan with the largest share of prompts within the target, where none reaches it."""


def layouts(setting: DiffusionSetting, devices: int) -> Iterator[Layout]:
    """Layouts of at most some devices: Ulysses x ring x guidance, in powers of two."""
    powers = [1 << exponent for exponent in range(devices.bit_length()) if 1 << exponent <= devices]
    for guidance in (1, 2) if setting.calls == 2 else (1,):
        for ulysses in powers:
            for ring in powers:
                layout = {"guidance": guidance, "ulysses": ulysses, "ring": ring}
                if guidance * ulysses * ring <= devices:
                    yield Layout.model_validate({**layout, "decoder": 1})


def search_diffusion(
    setting: DiffusionSetting, cluster: Cluster, load: DiffusionLoad, seed: int, top: int
) -> DiffusionSearch:
    """Search layouts, batches and replicas; the cheapest image first, ties by latency.

    Args:
        setting: model, request and library; its layout is replaced.
        cluster: devices that may be used.
        load: arrivals at a rate, and the target.
        seed: of the arrivals.
        top: most plans.

    Raises:
        InputError: arrivals without a rate, or without a target.
        InfeasibleError: the model fits no device of the cluster.
    """
    rate = load.arrivals.mean_rate()
    if rate is None or load.latency is None:
        raise InputError("a search needs arrivals at a rate and a latency target", "load")
    plans: list[DiffusionPlan] = []
    short: list[DiffusionPlan] = []
    removed: dict[str, int] = {}
    tried, fewest, problem = 0, math.inf, ""

    def drop(reason: str) -> None:
        removed[reason] = removed.get(reason, 0) + 1

    for layout in layouts(setting, cluster.devices):
        for batch in BATCHES:
            tried += 1
            work = setting.workload.model_copy(update={"batch": batch})
            sized = replace(setting, layout=layout, workload=work)
            if sized.devices > cluster.devices:
                drop("more devices than there are")
                continue
            sized = replace(sized, cluster=cluster.resized(sized.devices))
            try:
                check_layout(sized, "layout")
                request = _fitting(sized)
            except InputError:
                drop("degrees that do not divide the model")
                continue
            except InfeasibleError as error:
                problem = problem or str(error)
                drop("memory of a device")
                continue
            plan = _fewest(request.setting, request, load, rate, cluster, seed)
            if plan is None:
                fewest = min(fewest, (math.floor(rate / request.rate) + 1) * request.setting.devices)
                drop("more devices than there are")
            elif plan.result.share_within(load.latency) < load.share:
                short.append(plan)
                drop("latency target")
            else:
                plans.append(plan)
    if not plans and not short:
        few = f"{rate:g} a second need at least {fewest:,} devices; {cluster.name} has {cluster.devices:,}"
        raise InfeasibleError(few if fewest < math.inf else problem)
    plans.sort(key=lambda plan: (plan.devices, plan.p90_s))
    # Of plans of which none is in time, the quickest.
    within = load.latency or 0.0
    nearest = max(short, key=lambda plan: (plan.result.share_within(within), -plan.p90_s), default=None)
    return DiffusionSearch(tuple(plans[:top]), tried, removed, nearest)


def _fitting(setting: DiffusionSetting) -> DiffusionRequest:
    """The request with weights on each device, else divided among them, else with layers from the host.

    Raises:
        InfeasibleError: none fits; the message is that of the first.
    """
    ways = [{"sharded": True}, {"sharded": True, "offload": "layers"}, {"offload": "layers"}]
    try:
        return predict_request(setting)
    except InfeasibleError as error:
        for way in ways if setting.layout.devices > 1 else ways[-1:]:
            with suppress(InfeasibleError):
                return predict_request(replace(setting, layout=setting.layout.model_copy(update=way)))
        raise error from None


def _fewest(
    setting: DiffusionSetting,
    request: DiffusionRequest,
    load: DiffusionLoad,
    rate: float,
    cluster: Cluster,
    seed: int,
) -> DiffusionPlan | None:
    """The fewest replicas that reach the target, or the most that were tried; None: too many devices."""
    each, plan = setting.devices, None
    fewest = math.floor(rate / request.rate) + 1
    for replicas in range(fewest, fewest + MORE_REPLICAS + 1):
        if replicas * each > cluster.devices:
            break
        result = run_load(setting, load, replicas, seed)
        hour = cluster.device.price_per_hour_usd * replicas * each
        plan = DiffusionPlan(request, replicas, result, hour / 3600 / rate)
        if result.share_within(load.latency or math.inf) >= load.share:
            break
    return plan
