"""Steps a second of simulators, a policy that acts and a learner: three stations and the links between them.

Where actions wait for all environments, a cycle lasts as long as the slowest of them (expected maximum of a
lognormal law) and the policy's pass over all. Where they wait for the first, each environment goes its own
round: no station serves more than its rate, and no environment goes round faster than its own step and the
policy's pass.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from core.records import record
from hwmodels.kernels.chip import ELEMENT_BYTES
from simulator.frames.question import FramesSetting
from simulator.frameworks import frameworks
from simulator.ops.op import MemoryBound, Op, Product, backward
from simulator.pricing import Prices, price

QUANTILES = 512
"""Places at which the law of the slowest environment is read."""
LAUNCHES = 3
"""Kernels of a layer's forward pass in eager torch: product, bias, activation."""
BACKWARD_LAUNCHES = 2
"""Kernels of a backward pass over those of the forward pass."""
MOST_CORES = 2**14
"""Cores of a node up to which those are sought with which environments keep up."""
WAIT = 1.5
"""Passes from an observation to its action: half of the pass that runs, and its own."""
GRADIENT_BYTES = 4.0


@record()
class FrameRates:
    """Predicted rates in the steady state.

    Attributes:
        setting: the question.
        steps_s: steps of all environments a second.
        bounds: steps a second that each station or link could take alone.
        busy: share of time in which the stations work.
        batch: observations of a forward pass of the policy; 0 without one.
        cycle_s: of all environments once, from their actions to their observations.
        inference_s: of a forward pass over `batch`.
        learner_s: of an optimizer step, all epochs; 0 where nothing is learned.
    """

    setting: FramesSetting
    steps_s: float
    bounds: Mapping[str, float]
    busy: Mapping[str, float]
    batch: float
    cycle_s: float
    inference_s: float
    learner_s: float

    @property
    def frames_s(self) -> float:
        """Frames a second."""
        return self.steps_s * self.setting.workload.frames

    @property
    def binding(self) -> str:
        """The station or link with the lowest rate."""
        return min(self.bounds, key=lambda name: self.bounds[name])


@lru_cache(maxsize=1024)
def slowest(count: int, sigma: float) -> float:
    """Expected maximum of some draws of a lognormal law, over its mean.

    Args:
        count: draws.
        sigma: standard deviation of the logarithm.
    """
    if count <= 1 or not sigma:
        return 1.0
    normal, places = NormalDist(), (np.arange(QUANTILES) + 0.5) / QUANTILES
    deviations = [normal.inv_cdf(place) for place in (places ** (1.0 / count)).tolist()]
    return float(np.exp(sigma * np.array(deviations) - 0.5 * sigma**2).mean())


def predict_frames(setting: FramesSetting) -> FrameRates:
    """Predict the rates of a setting."""
    step, learner = _step_seconds(setting), _learner_seconds(setting)
    learned = math.inf
    if setting.workload.batch is not None:
        learned = setting.workload.batch / learner
    best = max(
        (_rates(setting, step, learned, batch) for batch in _batches(setting)),
        key=lambda rates: (rates[0], rates[1].get("inference", 0.0)),
    )
    steps, bounds, batch, inference = best
    acted = steps * inference / max(batch * setting.acting, 1.0)
    busy = {"environments": steps * step / min(setting.threads, setting.cores), "inference": acted}
    busy["learner"] = 0.0 if math.isinf(learned) else steps / learned
    return FrameRates(
        *(setting, steps, bounds, {name: min(share, 1.0) for name, share in busy.items()}, batch),
        cycle_s=setting.count / steps,
        inference_s=inference,
        learner_s=learner,
    )


def keeping_up(setting: FramesSetting) -> int | None:
    """Physical cores of a node with which environments no longer decide, their threads in proportion.

    None: they decide with any number up to `MOST_CORES`, or nothing else has a rate.
    """
    places = setting.environments

    def decides(cores: int) -> bool:
        threads = None if places.threads is None else max(round(places.threads * cores / places.cores), 1)
        changed = places.model_copy(update={"cores": cores, "threads": threads})
        return predict_frames(replace(setting, environments=changed)).binding == "environments"

    if decides(MOST_CORES):
        return None
    return bisect_left(range(1, MOST_CORES), True, key=lambda cores: not decides(cores)) + 1


def _rates(
    setting: FramesSetting, step: float, learned: float, batch: float
) -> tuple[float, dict[str, float], float, float]:
    """Steps a second with some observations in a pass, the bounds, the batch, and seconds of a pass."""
    sampler, count = setting.sampler, setting.count
    inference = _pass_seconds(setting, batch)
    cores = min(setting.threads, setting.cores) if sampler.parallel else 1
    if sampler.waits == "all":
        bounds = {"environments": count / (_cycle_seconds(setting, step) + inference)}
    else:
        bounds = {"environments": min(cores / step, count / (step + WAIT * inference))}
    acted = batch * setting.acting / inference if inference else math.inf
    if setting.acting:
        bounds["inference"] = acted
    bounds |= _links(setting)
    if not math.isinf(learned):
        bounds["learner"] = learned
    beside = min(bounds.values())
    if setting.learner == "in-turn" and not math.isinf(learned):
        beside = min(rate for name, rate in bounds.items() if name != "learner")
        beside = 1.0 / (1.0 / beside + 1.0 / learned)
    elif setting.acting and setting.learning and setting.inference.place == "shared":
        bounds["devices"] = 1.0 / (1.0 / acted + 1.0 / learned)
        beside = min(beside, bounds["devices"])
    return beside, bounds, batch, inference


def _cycle_seconds(setting: FramesSetting, step: float) -> float:
    """Seconds in which all environments step once, where the slowest is waited for."""
    places, sampler = setting.environments, setting.sampler
    if not sampler.parallel:
        return setting.count * step
    slowed = max(setting.threads / setting.cores, 1.0)
    longest = slowest(setting.threads, places.sigma / math.sqrt(places.each))
    return places.each * step * slowed * longest + sampler.cycle_s + sampler.environment_s * setting.count


def _step_seconds(setting: FramesSetting) -> float:
    """Seconds of a core for a step, with the policy's products where cores act."""
    model, acts = setting.model, setting.inference
    acted = model.flops / acts.core_flops if model is not None and acts.place == "cores" else 0.0
    return setting.environments.seconds + acted


def _batches(setting: FramesSetting) -> list[float]:
    """Observations of a pass that are tried: the stated ones, all, or powers of two."""
    if not setting.acting:
        return [0.0]
    share = setting.count / setting.acting
    if setting.inference.batch is not None:
        return [min(float(setting.inference.batch), share)]
    if setting.sampler.waits == "all":
        return [share]
    return [*(2.0**power for power in range(math.ceil(math.log2(max(share, 1.0))))), share]


def _links(setting: FramesSetting) -> dict[str, float]:
    """Observations a second over host links of acting devices, and over the network from other nodes."""
    size, rates = setting.environments.observation_bytes, setting.cluster.rates
    if not size or not setting.acting:
        return {}
    bounds = {"host link": rates.copies(setting.acting) / size}
    if setting.environments.nodes is not None:
        bounds["network"] = rates.wire * setting.cluster.nodes_for(setting.acting) / size
    return bounds


def _ops(setting: FramesSetting, observations: float) -> list[Op]:
    """Products of a forward pass, and activations that are read and written."""
    model, ops = setting.model, list[Op]()
    if model is None:
        return ops
    for number, layer in enumerate(model.layers):
        rows, outputs = observations * layer.rows, float(layer.outputs)
        ops.append(
            Product(
                name=f"layer.{number}",
                m=rows,
                n=outputs,
                k=float(layer.inputs),
                dtype=model.dtype,
                frozen_input=number == 0,
            )
        )
        size = 2.0 * ELEMENT_BYTES[model.dtype] * rows * outputs
        ops.append(
            MemoryBound(name=f"act.{number}", kind="elementwise", bytes=size, backward_bytes=1.5 * size)
        )
    return ops


def _seconds_of(setting: FramesSetting, ops: list[Op], launches: float) -> float:
    """Seconds of a list of ops: kernels run beside the host that launches them."""
    prices = Prices(setting.cluster.device.kernels, setting.cluster)
    kernels = float(sum(np.sum(time) for time in price(ops, prices)))
    host = float(frameworks.get("torch-fsdp-eager").host.seconds_per_kernel or 0.0)
    return max(kernels, launches * host * setting.cluster.host_slowdown)


def _pass_seconds(setting: FramesSetting, observations: float) -> float:
    """Seconds of the policy's forward pass over some observations on one device."""
    if not setting.acting or setting.model is None:
        return 0.0
    return _seconds_of(setting, _ops(setting, observations), float(LAUNCHES * len(setting.model.layers)))


def _learner_seconds(setting: FramesSetting) -> float:
    """Seconds of an optimizer step: forward and backward passes of its epochs, and the sum of gradients."""
    model, devices, work = setting.model, setting.learning, setting.workload
    if model is None or work.batch is None:
        return 0.0
    forward = _ops(setting, work.batch / devices)
    ops = [*forward, *backward(forward)]
    time = _seconds_of(setting, ops, LAUNCHES * (1.0 + BACKWARD_LAUNCHES) * len(model.layers))
    if devices > 1:
        time += float(setting.cluster.collective("all_reduce", GRADIENT_BYTES * model.parameters, devices))
    return work.epochs * time
