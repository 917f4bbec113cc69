"""Work of one batch of images or videos: its ops, priced on one device before a library's constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from core.records import record
from hwmodels.device import Device
from simulator.diffusion import addons
from simulator.diffusion.convolution import tiled_ops
from simulator.diffusion.encoders import encoder_ops
from simulator.diffusion.libraries import DiffusionLibrary
from simulator.diffusion.ops import WIDTH, TransformerCall, call_ops
from simulator.diffusion.setting import DiffusionSetting
from simulator.ops.op import Attention, Collective, MemoryBound, Op, Product
from simulator.pricing import Prices, price

CLASSES = ("product", "attention", "memory", "convolution", "depthwise")
"""Classes of kernels; each but products has a constant of the library."""


@record()
class KernelWork:
    """What a list of ops takes on one device, before a library's constants.

    Attributes:
        seconds: of kernels by class, at the calibrated kernels' speed.
        exchange: seconds of collectives by kind.
        launches: kernels.
        flops: of products and attention.
        bytes: of weights and of elementwise kernels.
        received: bytes that collectives bring to the device.
    """

    seconds: Mapping[str, float]
    exchange: Mapping[str, float]
    launches: float
    flops: float
    bytes: float
    received: float


@record()
class RequestWork:
    """What a batch takes on one device.

    Attributes:
        step: calls of one step, with the sums of ControlNets' outputs; all runs of the blocks.
        encoders: each text encoder.
        decoder: of latents.
        control: one ControlNet in one step; None without.
        repeated: the model's own blocks that a ControlNet repeats.
        warm_up: calls of one of the first steps, which read all keys of the other patches; None where all do.
        merge: one adapter into the weights; None without.
    """

    step: KernelWork
    encoders: tuple[KernelWork, ...]
    decoder: KernelWork
    warm_up: KernelWork | None = None
    control: KernelWork | None = None
    repeated: KernelWork | None = None
    merge: KernelWork | None = None


def class_of(op: Op) -> str:
    """Class of a kernel."""
    if isinstance(op, Product):
        return "convolution" if op.kind == "convolution" else "product"
    if isinstance(op, Attention):
        return "attention"
    return "depthwise" if op.kind == "depthwise" else "memory"


def work_of(ops: Iterable[Op], prices: Prices) -> KernelWork:
    """Price a list of ops."""
    listed = list(ops)
    # The calibrations know elementwise kernels; a depthwise convolution is priced by its bytes.
    plain = [op.changed(kind="elementwise") if op.kind == "depthwise" else op for op in listed]
    seconds: dict[str, float] = dict.fromkeys(CLASSES, 0.0)
    exchange: dict[str, float] = {}
    launches = flops = moved_bytes = received = 0.0
    for op, time in zip(listed, price(plain, prices), strict=True):
        taken = float(np.sum(time))
        if isinstance(op, Collective):
            size = float(np.max(op.size))
            exchange[op.kind] = exchange.get(op.kind, 0.0) + taken
            received += float(op.bytes) * float(op.repeats) * (size - 1.0) / size
            continue
        seconds[class_of(op)] += taken
        launches += float(op.launches)
        flops += float(op.flops)
        if isinstance(op, MemoryBound):
            moved_bytes += float(op.bytes) * float(op.repeats)
        elif isinstance(op, Product):
            moved_bytes += WIDTH * float(op.parameters)
    return KernelWork(seconds, exchange, launches, flops, moved_bytes, received)


def prices_of(setting: DiffusionSetting) -> Prices:
    """Kernels and links of the replica."""
    return Prices(setting.cluster.device.kernels, setting.cluster)


def call_of(setting: DiffusionSetting) -> TransformerCall:
    """The call of one device."""
    layout = setting.layout
    return TransformerCall(
        setting.model,
        samples=setting.samples,
        tokens=float(setting.tokens),
        ulysses=float(layout.ulysses),
        ring=float(layout.ring),
        patches=float(layout.patches),
        conditioning=layout.conditioning,
        compiled=setting.library.compiled,
        attention=setting.library.attention,
    )


def request_work(setting: DiffusionSetting) -> RequestWork:
    """Price the ops of a batch on one device."""
    prices, library = prices_of(setting), setting.library
    prompts, ranks = float(setting.prompts * setting.calls), float(setting.layout.decoder)
    call, added = call_of(setting), setting.addons
    ops = call_ops(call)
    control = repeated = None
    if added.controls:
        ops += addons.sum_ops(call, added.controls)
        control, repeated = (
            work_of((_again(op, setting) for op in make(call)), prices)
            for make in (addons.control_ops, addons.repeated_ops)
        )
    decoder = tiled_ops(
        setting.model.decoder,
        float(setting.prompts),
        setting.latent,
        ranks,
        setting.layout.tiling,
        library.compiled,
    )
    warm_up = None
    if call.conditioning < 1:
        first = call_ops(replace(call, conditioning=1.0))
        warm_up = work_of((_again(op, setting) for op in first), prices)
    return RequestWork(
        work_of((_again(op, setting) for op in ops), prices),
        tuple(
            work_of(encoder_ops(encoder, prompts, library.compiled), prices)
            for encoder in setting.model.encoders
        ),
        work_of((_in_layout(op, library) for op in decoder), prices),
        warm_up,
        control,
        repeated,
        work_of(addons.merge_ops(setting.model), prices) if added.adapters else None,
    )


def _again(op: Op, setting: DiffusionSetting) -> Op:
    """An op of all passes, as the library runs it."""
    passes = setting.passes
    op = _in_layout(op, setting.library)
    return op if passes == 1 else op.changed(repeats=op.repeats * passes, launches=op.launches * passes)


def _in_layout(op: Op, library: DiffusionLibrary) -> Op:
    """A convolution reads inputs once where images lie channels last; else the library counts copies."""
    return op if library.channels_last or not isinstance(op, Product) else op.changed(window=1.0)


def device_seconds(work: KernelWork, library: DiffusionLibrary, device: Device) -> float:
    """Seconds of the kernels of a list of ops, without exchanges."""
    times, seconds = library.on(device), work.seconds
    return seconds["product"] + sum(getattr(times, name) * seconds[name] for name in CLASSES[1:])


def alone_s(work: KernelWork, library: DiffusionLibrary, device: Device) -> float:
    """Seconds of a list of ops without exchanges that runs alone: its kernels, or their launches."""
    return max(device_seconds(work, library, device), work.launches * library.launch_s)
