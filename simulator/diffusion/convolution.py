"""The decoder of latents as a list of ops: a convolution is a product over its window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from simulator.diffusion.models import LatentDecoder
from simulator.ops.op import Attention, MemoryBound, Op, Product

WIDTH = 2.0
"""Bytes of a number."""
PASSES = 7.0
"""Passes over a convolution's input around it: group norm (2), activation (2), residual or padding (3)."""


def _convolution(name: str, pixels: float, outputs: float, inputs: float, window: float) -> Iterator[Op]:
    yield Product(
        name=name,
        kind="convolution",
        m=pixels,
        n=outputs,
        k=inputs * window,
        parameters=outputs * inputs * window + outputs,
    )
    yield MemoryBound(
        name=f"{name}.around",
        kind="elementwise",
        bytes=WIDTH * PASSES * pixels * inputs,
        launches=4.0,
        starts=4.0,
    )


def tiled_ops(
    decoder: LatentDecoder, samples: float, latent: tuple[int, int, int], ranks: float, tiling: bool
) -> list[Op]:
    """Ops of the decoder over tiles that overlap, one after the other; over the whole where it has none.

    Args:
        decoder, samples, latent, ranks: as in `decoder_ops`.
        tiling: whether rows and columns are tiled too; frames are wherever the decoder has tiles of them.
    """
    tiles = decoder.tiles
    if tiles is None:
        return decoder_ops(decoder, samples, latent, ranks)
    pixels = tiles.pixels if tiling else None
    cuts = [_tiles(size, tile) for size, tile in zip(latent, (tiles.frames, pixels, pixels), strict=True)]
    count = prod(number for number, _ in cuts)
    frames, rows, columns = (mean for _, mean in cuts)
    ops = decoder_ops(decoder, samples, (frames, rows, columns), ranks)
    return [op.changed(repeats=op.repeats * count, launches=op.launches * count) for op in ops]


def _tiles(size: int, tile: tuple[int, int] | None) -> tuple[int, float]:
    """Number of tiles along an axis, and their mean length."""
    if tile is None or size <= tile[0]:
        return 1, float(size)
    length, step = tile
    lengths = [min(length, size - start) for start in range(0, size, step)]
    return len(lengths), sum(lengths) / len(lengths)


def decoder_ops(
    decoder: LatentDecoder, samples: float, latent: tuple[float, float, float], ranks: float = 1.0
) -> list[Op]:
    """Ops of the decoder on one of ``ranks`` that divide its pixels.

    Args:
        decoder: its stages.
        samples: images or videos.
        latent: latent frames, rows and columns.
        ranks: devices among which pixels are divided.
    """
    frames, rows, columns = latent
    window = float(decoder.kernel**2) * (decoder.kernel if decoder.time > 1 else 1)
    pixels, channels = (
        samples * frames * rows * columns / ranks,
        [float(c) for c in reversed(decoder.channels)],
    )
    ops = [*_convolution("decoder.input", pixels, channels[0], float(decoder.latent), window)]
    for block in range(2):
        for half in range(2):
            ops += _convolution(f"decoder.middle.{block}.{half}", pixels, channels[0], channels[0], window)
    if decoder.attends:
        ops += _attends(samples * frames / ranks, float(rows * columns), channels[0])
    grown = 1
    for stage, (before, width) in enumerate(pairwise([channels[0], *channels])):
        for block in range(decoder.blocks):
            inputs = before if block == 0 else width
            ops += _convolution(f"decoder.{stage}.{block}.0", pixels, width, inputs, window)
            ops += _convolution(f"decoder.{stage}.{block}.1", pixels, width, width, window)
        if stage < len(channels) - 1:
            # Frames double in the first stages, until the decoder's ratio is reached.
            doubled = 2 if grown < decoder.time else 1
            grown, pixels = grown * doubled, pixels * 4 * doubled
            ops += _convolution(f"decoder.{stage}.up", pixels, width, width, window)
    return [*ops, *_convolution("decoder.output", pixels, 3.0, channels[-1], window)]


def _attends(sequences: float, pixels: float, channels: float) -> Iterator[Op]:
    yield Product(
        name="decoder.attention.qkvo", m=sequences * pixels, n=4 * channels, k=channels, launches=4.0
    )
    yield Attention(
        name="decoder.attention",
        sequences=sequences,
        queries=pixels,
        keys=pixels,
        heads=1.0,
        kv_heads=1.0,
        head_dim=int(channels),
        v_head_dim=int(channels),
        causal=False,
    )


def decoder_parameters(decoder: LatentDecoder) -> int:
    """Parameters of the decoder's convolutions."""
    return round(sum(float(op.parameters) for op in decoder_ops(decoder, 1.0, (1, 8, 8))))
