"""Weights and activations of a device, and the time in which weights that it does not keep reach it."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import InfeasibleError
from hwmodels.device import LIBRARY_BYTES
from simulator.diffusion import addons
from simulator.diffusion.convolution import decoder_activations, decoder_parameters
from simulator.diffusion.encoders import encoder_parameters
from simulator.diffusion.models import TextEncoder
from simulator.diffusion.ops import WIDTH, TransformerCall, transformer_parameters
from simulator.diffusion.setting import DiffusionSetting


def encoder_bytes(encoder: TextEncoder) -> tuple[float, float]:
    """Weights of a text encoder: of its layers, and of its embedding, which stays on the device."""
    embedding = encoder.vocabulary * encoder.hidden
    return WIDTH * (encoder_parameters(encoder) - embedding), WIDTH * embedding


def transformer_bytes(setting: DiffusionSetting) -> float:
    """Weights of one transformer, those of a stage where blocks are divided among stages."""
    return WIDTH * transformer_parameters(setting.model) / setting.layout.pipefusion


def weight_bytes(setting: DiffusionSetting) -> dict[str, float]:
    """Weights on one device: transformer, text encoders, decoder."""
    model = setting.model
    sizes = [encoder_bytes(encoder) for encoder in model.encoders]
    encoders = [
        _resident(setting, layers, encoder.layers) + embedding
        for encoder, (layers, embedding) in zip(model.encoders, sizes, strict=True)
    ]
    # Encoders from the host run one after the other, in the same buffers.
    together = max if setting.layout.offload == "layers" else sum
    transformers = model.transformers * transformer_bytes(setting)
    controls = setting.addons.controls if setting.addons.placement == "shared" else 0
    return {
        "transformer": _resident(setting, transformers, model.transformers * model.layers),
        **({"controls": controls * WIDTH * addons.control_parameters(model)} if controls else {}),
        "encoders": together(encoders) if encoders else 0.0,
        "decoder": WIDTH * decoder_parameters(model.decoder),
    }


def _resident(setting: DiffusionSetting, all_bytes: float, blocks: int) -> float:
    """Bytes of weights on a device: all, or its part and two whole blocks, that which computes and the next.

    Args:
        setting: the question.
        all_bytes: bytes of all blocks.
        blocks: number of them.
    """
    layout = setting.layout
    if layout.resident:
        return all_bytes
    # A part of the next block passes through the device on its way to the others.
    part = all_bytes / blocks if layout.offload == "layers" else all_bytes
    part_bytes = part / layout.holders if layout.sharded else 0.0
    return min(part_bytes + 2.0 * all_bytes / blocks, all_bytes)


def arriving_seconds(setting: DiffusionSetting, all_bytes: float, blocks: int) -> float:
    """Seconds in which blocks come from the host, and from the devices that hold parts of them; 0: they stay.

    A block's part is copied, then gathered: both streams work on the next block only.

    Args:
        setting: the question.
        all_bytes: bytes of all blocks.
        blocks: number of them.
    """
    layout, cluster, seconds = setting.layout, setting.cluster, 0.0
    if layout.offload == "layers":
        seconds += float(cluster.device.kernels.host_copy(all_bytes / layout.holders))
    if layout.sharded:
        stride = layout.copy_devices if layout.data > 1 else 1
        gathered = cluster.collective("all_gather", all_bytes / blocks, layout.holders, stride)
        seconds += blocks * float(gathered)
    return seconds


def streamed_seconds(setting: DiffusionSetting) -> float:
    """Seconds in which the blocks of a step reach a device; 0 where they stay."""
    if setting.layout.resident:
        return 0.0
    blocks = setting.model.layers // setting.layout.pipefusion or 1
    return setting.passes * arriving_seconds(setting, transformer_bytes(setting), blocks)


def memory_of(setting: DiffusionSetting, call: TransformerCall) -> dict[str, float]:
    """Bytes on one device by part; activations are those of one block, or of the decoder, which follows."""
    model = setting.model
    widest = max(
        max(blocks.feed_forward * (2 if blocks.gated else 1), blocks.hidden) / blocks.shrink**2
        for blocks in model.blocks
    )
    rows = call.rows + call.text
    decoding = decoder_activations(model.decoder, setting.latent, float(setting.layout.decoder))
    return {
        **weight_bytes(setting),
        "activations": max(WIDTH * rows * (widest + 8.0 * model.hidden), decoding),
        "workspace": LIBRARY_BYTES,
    }


def check_fits(setting: DiffusionSetting, memory: Mapping[str, float]) -> None:
    """Refuse a batch that does not fit a device.

    Raises:
        InfeasibleError: with the parts.
    """
    needed, device = sum(memory.values()), setting.cluster.device
    if needed <= device.memory_bytes:
        return
    parts = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in memory.items())
    raise InfeasibleError(
        f"a device needs {needed / 1e9:.1f} GB ({parts}); {device.name} has {device.memory_bytes / 1e9:.1f}; "
        "pipefusion, sharded, offload: layers, or a smaller batch would help"
    )
