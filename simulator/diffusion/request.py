"""Seconds, energy and memory of one batch of images or videos.

A request is text encoders, as many calls of the transformer as steps, and the decoder of latents. In eager
mode the host launches every kernel and runs ahead of the device: a call takes the longer of the host's time
and the device's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from core.records import record
from simulator.diffusion import addons
from simulator.diffusion.libraries import DiffusionLibrary
from simulator.diffusion.models import TextEncoder
from simulator.diffusion.ops import WIDTH
from simulator.diffusion.setting import DiffusionSetting
from simulator.diffusion.weights import (
    arriving_seconds,
    check_fits,
    encoder_bytes,
    memory_of,
    streamed_seconds,
)
from simulator.diffusion.work import KernelWork, RequestWork, alone_s, call_of, device_seconds, request_work
from simulator.training.overlap import SLOWDOWN, hide


@record()
class RequestTimes:
    """Seconds of a batch.

    Attributes:
        encoders_s, decoder_s: of text encoders and decoder.
        step_s: of one computed step: the longest of what follows.
        device_s, exposed_s: kernels, and exchanges that nothing hides.
        host_s: launches.
        stream_s: weights that come from the host, or from devices that hold parts of them.
        addons_s: ControlNets and adapters, until the steps have them.
        latency_s: of the whole batch.
    """

    encoders_s: float
    decoder_s: float
    step_s: float
    device_s: float
    exposed_s: float
    host_s: float
    stream_s: float
    addons_s: float
    latency_s: float


@record()
class DiffusionRequest:
    """A predicted batch.

    Attributes:
        setting: the question.
        times: seconds by part.
        watts: mean power of all devices of the replica.
        memory_bytes: peak of one device, by part.
        received_bytes: bytes that a device receives in a step.
    """

    setting: DiffusionSetting
    times: RequestTimes
    watts: float
    memory_bytes: Mapping[str, float]
    received_bytes: float

    @property
    def joules(self) -> float:
        """Energy of one image or video, devices only."""
        return self.watts * self.times.latency_s / self.setting.workload.batch

    @property
    def usd(self) -> float:
        """List price of one image or video."""
        hour = self.setting.cluster.device.price_per_hour_usd * self.setting.devices
        return hour * self.times.latency_s / 3600 / self.setting.workload.batch

    @property
    def rate(self) -> float:
        """Images or videos a second of one replica that is always busy."""
        return self.setting.workload.batch / self.times.latency_s


def predict_request(setting: DiffusionSetting) -> DiffusionRequest:
    """Predict one batch.

    Raises:
        InfeasibleError: weights and activations do not fit a device.
    """
    memory = memory_of(setting, call_of(setting))
    check_fits(setting, memory)
    work = request_work(setting)
    times = request_times(setting, work, setting.library)
    return DiffusionRequest(
        setting=setting,
        times=times,
        watts=_watts(setting, work, times),
        memory_bytes=memory,
        received_bytes=work.step.received + _passed_bytes(setting),
    )


def request_times(setting: DiffusionSetting, work: RequestWork, library: DiffusionLibrary) -> RequestTimes:
    """Seconds of a batch with a library's constants.

    A ring passes keys on beside the attention of the block before: only the excess shows. Stale neighbours
    are gathered beside the whole step, and slow its kernels meanwhile. Those of the first steps are not
    stale, and read in whole: they show in full, as all-to-alls and the exchange of both calls of guidance do.
    """
    layout, device = setting.layout, setting.cluster.device
    step, stages = work.step, layout.pipefusion
    kernels = device_seconds(step, library, device) / stages
    attention = library.on(device).attention * step.seconds["attention"]
    ring = max(step.exchange.get("ring", 0.0) - attention * (layout.ring - 1) / layout.ring, 0.0)
    gathered = step.exchange.get("stale", 0.0)
    stale = float(hide(np.array(gathered), np.array(kernels), np.zeros(()), SLOWDOWN.get(device.vendor, 0.0)))
    exposed = step.exchange.get("ulysses", 0.0) + ring + stale + _passed_seconds(setting, kernels)
    host = step.launches * library.launch_s
    if work.control and work.repeated:
        guided = _controls(setting, work.control, work.repeated, library, kernels + exposed)
        kernels, exposed, host = kernels + guided.kernels, exposed + guided.waited, host + guided.host
    if layout.ulysses * layout.ring > 1:
        calls = setting.passes * setting.model.layers
        host += calls * (library.sequence_s + (layout.ring - 1) * library.ring_s)
    stream = streamed_seconds(setting)
    longest = max(kernels + exposed, host, stream)
    encoders = setting.workload.encoded * sum(
        max(alone_s(part, library, device), _arriving_s(setting, encoder))
        for part, encoder in zip(work.encoders, setting.model.encoders, strict=True)
    )
    decoder = alone_s(work.decoder, library, device)
    # The first patch passes all stages alone.
    steps = setting.computed_steps + (stages - 1) / stages
    added = _addons_s(setting, work, library, longest)
    more = gathered - stale
    if work.warm_up:
        longer = device_seconds(work.warm_up, library, device) - device_seconds(step, library, device)
        more += longer + work.warm_up.exchange.get("stale", 0.0) - gathered
    first = max(kernels + exposed + more, host, stream) - longest
    latency = library.request_s + encoders + added + steps * longest + decoder
    latency += min(float(layout.warm_up), setting.computed_steps) * first
    return RequestTimes(encoders, decoder, longest, kernels, exposed, host, stream, added, latency)


def _arriving_s(setting: DiffusionSetting, encoder: TextEncoder) -> float:
    """Seconds in which the layers of a text encoder reach a device, once for the prompts of a batch."""
    if setting.layout.resident:
        return 0.0
    layers, _ = encoder_bytes(encoder)
    return setting.passes * arriving_seconds(setting, layers, encoder.layers)


class Guided(NamedTuple):
    """What ControlNets add to a step on the model's devices: kernels, waiting for others, launches."""

    kernels: float
    waited: float
    host: float


def _controls(
    setting: DiffusionSetting,
    control: KernelWork,
    repeated: KernelWork,
    library: DiffusionLibrary,
    step: float,
) -> Guided:
    """ControlNets in turn on the model's devices, or each on its own beside the blocks that it repeats.

    The model's device receives the outputs of all of them through its one link. A service of some copies
    takes them in turn: a step lasts at least as long as one ControlNet over all of them.
    """
    controls, device = setting.addons.controls, setting.cluster.device
    if not setting.addons.apart:
        kernels = controls * device_seconds(control, library, device)
        return Guided(kernels, 0.0, controls * control.launches * library.launch_s)
    size = controls * addons.output_bytes(call_of(setting))
    sent_s = float(setting.cluster.collective("send_receive", size, 2, setting.layout.devices))
    hidden, each = alone_s(repeated, library, device), alone_s(control, library, device)
    waited = max(each + sent_s - hidden, 0.0)
    if setting.addons.placement == "service":
        waited = max(waited, setting.layout.data * each - step)
    return Guided(0.0, waited, 0.0)


def _addons_s(setting: DiffusionSetting, work: RequestWork, library: DiffusionLibrary, step: float) -> float:
    """Seconds that a prompt waits for weights of its ControlNets and adapters, in the mean.

    Args:
        step: seconds of a step.
    """
    added, model = setting.addons, setting.model
    rate = setting.cluster.rates.link
    if added.source == "disk":
        rate = min(rate, setting.cluster.rates.ssd_read or rate)
    waited = 0.0
    if added.controls:
        # ControlNets on devices of their own are read there at the same time.
        copies = 1 if added.apart else added.controls
        waited += added.uncached * copies * WIDTH * addons.control_parameters(model) / rate
    if work.merge:
        read = added.adapters * addons.adapter_bytes(model, added.rank) / rate
        if added.merged == "beside":
            read = max(read - min(added.bound, setting.computed_steps) * step, 0.0)
        else:
            weights = sum(float(op.launches) for op in addons.adapted(model))
            waited += added.adapters * weights * library.adapter_s
        waited += read + added.adapters * alone_s(work.merge, library, setting.cluster.device)
    return waited


def _passed_seconds(setting: DiffusionSetting, device: float) -> float:
    """Exposed seconds of activations between stages, and of outputs between both calls of guidance."""
    layout, cluster = setting.layout, setting.cluster
    seconds = 0.0
    if layout.pipefusion > 1:
        passed = float(cluster.collective("send_receive", _passed_bytes(setting), 2))
        seconds += max(passed - device, 0.0)
    if layout.guidance > 1:
        frames, rows, columns = setting.latent
        size = 2 * WIDTH * setting.prompts * frames * rows * columns * setting.model.inputs
        seconds += float(cluster.collective("all_gather", size, 2, layout.copy_devices // 2))
    return seconds


def _passed_bytes(setting: DiffusionSetting) -> float:
    """Bytes of activations that a stage receives in a step (PipeFusion)."""
    if setting.layout.pipefusion == 1:
        return 0.0
    return (
        WIDTH
        * setting.passes
        * setting.samples
        * setting.tokens
        / setting.layout.sequence
        * setting.model.hidden
    )


def _watts(setting: DiffusionSetting, work: RequestWork, times: RequestTimes) -> float:
    """Mean power of the replica's devices, from their use of matrix units and of memory bandwidth."""
    layout, added, library = setting.layout, setting.addons, setting.library
    steps, device = setting.computed_steps, setting.cluster.device
    passes = steps / layout.pipefusion
    busy_s = steps * times.device_s + device_seconds(work.decoder, library, device)
    flops = passes * work.step.flops + work.decoder.flops
    moved_bytes = passes * work.step.bytes + work.decoder.bytes
    beside = 0.0
    if work.control and added.apart:
        # Devices of a service take the calls of all copies.
        calls = steps * (layout.data if added.placement == "service" else 1)
        busy = calls * device_seconds(work.control, library, device)
        each = _device_watts(setting, times, busy, calls * work.control.flops, calls * work.control.bytes)
        beside = (setting.devices - layout.devices) * each
    elif work.control:
        flops += added.controls * steps * work.control.flops
        moved_bytes += added.controls * steps * work.control.bytes
    return layout.devices * _device_watts(setting, times, busy_s, flops, moved_bytes) + beside


def _device_watts(
    setting: DiffusionSetting, times: RequestTimes, busy_s: float, flops: float, moved_bytes: float
) -> float:
    """Mean power of one device over a batch.

    Args:
        busy_s: seconds of its kernels.
        flops, moved_bytes: of products, and bytes of its memory.
    """
    device, latency = setting.cluster.device, times.latency_s
    running, reading, computing = device.generation.power_shares
    busy = min(busy_s / latency, 1.0)
    compute = min(flops / (device.peak("bf16") * latency), 1.0)
    memory = min(moved_bytes / (device.memory_bandwidth * latency), 1.0)
    share = running * busy + reading * memory + computing * float(np.sqrt(compute * busy))
    return device.idle_watts + (device.tdp_watts - device.idle_watts) * min(share, 1.0)
