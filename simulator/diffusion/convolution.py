"""The decoder of latents as a list of ops: a convolution is a product over its window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from simulator.diffusion.models import LatentDecoder
from simulator.ops.op import Attention, MemoryBound, Op, Product

WIDTH = 2.0
"""Bytes of a number."""
NORMED, ACTIVATED, ADDED = 2.0, 2.0, 3.0
"""Passes over values of a norm, an activation and a sum of two inputs."""
PASSES = NORMED + ACTIVATED + ADDED
"""Passes over a convolution's input around it: group norm, activation, residual or padding."""
WIDE_NORM = 16.0
"""The same of an RMSNorm with a bias through 32 bits (diffusers, normalization.py: RMSNorm)."""
SCALED, SHORTCUT = 1.25, 6.5
"""The same of an interpolation, over its output; of a shortcut that is repeated, shuffled and added."""
LINEAR = 12.0
"""The same of linear attention, over queries, keys and values of both scales: joined, cast, activated,
divided (diffusers, attention_processor.py: SanaMultiscaleAttnProcessor2_0)."""
LIVE = 2178.0 / 256.0
"""Copies of its widest activation that a decoder holds: 2,178 values for each pixel of 256 channels
(comfyanonymous/ComfyUI, comfy/sd.py: memory_used_decode of AutoencoderKL)."""
HEAD, SCALE, MLP_GATES = 32.0, 5.0, 8.0
"""Head size, side of the second scale's window, width of the gated MLP over the block (AutoencoderDC)."""


def _convolution(name: str, pixels: float, outputs: float, inputs: float, window: float) -> Iterator[Op]:
    yield Product(
        name=name,
        kind="convolution",
        m=pixels,
        n=outputs,
        k=inputs * window,
        window=window,
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
    decoder: LatentDecoder,
    samples: float,
    latent: tuple[int, int, int],
    ranks: float,
    tiling: bool,
    compiled: bool = False,
) -> list[Op]:
    """Ops of the decoder over tiles that overlap, one after the other; over the whole where it has none.

    Args:
        decoder, samples, latent, ranks, compiled: as in `decoder_ops`.
        tiling: whether rows and columns are tiled too; frames are wherever the decoder has tiles of them.
    """
    tiles = decoder.tiles
    if tiles is None:
        return decoder_ops(decoder, samples, latent, ranks, compiled)
    pixels = tiles.pixels if tiling else None
    cuts = [_tiles(size, tile) for size, tile in zip(latent, (tiles.frames, pixels, pixels), strict=True)]
    count = prod(number for number, _ in cuts)
    frames, rows, columns = (mean for _, mean in cuts)
    ops = decoder_ops(decoder, samples, (frames, rows, columns), ranks)
    return [op.changed(repeats=op.repeats * count, launches=op.launches * count) for op in ops]


def decoder_activations(decoder: LatentDecoder, latent: tuple[int, int, int], ranks: float) -> float:
    """Bytes of activations at the decoder's widest layer.

    A decoder takes one sample at a time, of videos one latent frame; one that knows tiles takes a tile.
    """
    frames, rows, columns = (float(size) for size in latent)
    if decoder.tiles is not None:
        frames = min(frames, float(decoder.tiles.frames[0]))
        rows, columns = (min(size, float(decoder.tiles.pixels[0])) for size in (rows, columns))
    elif frames > 1:
        # All latent frames but the first stand for `time` frames.
        frames = 2.0 - 1.0 / decoder.time
    ops = decoder_ops(decoder, 1.0, (frames, rows, columns), ranks)
    convolutions = [op for op in ops if isinstance(op, Product) and op.kind == "convolution"]
    widest = max(float(op.m) * max(float(op.n), float(op.k) / op.window) for op in convolutions)
    return WIDTH * LIVE * widest


def _tiles(size: int, tile: tuple[int, int] | None) -> tuple[int, float]:
    """Number of tiles along an axis, and their mean length."""
    if tile is None or size <= tile[0]:
        return 1, float(size)
    length, step = tile
    lengths = [min(length, size - start) for start in range(0, size, step)]
    return len(lengths), sum(lengths) / len(lengths)


def decoder_ops(
    decoder: LatentDecoder,
    samples: float,
    latent: tuple[float, float, float],
    ranks: float = 1.0,
    compiled: bool = False,
) -> list[Op]:
    """Ops of the decoder on one of ``ranks`` that divide its pixels.

    Args:
        decoder: its stages.
        samples: images or videos.
        latent: latent frames, rows and columns.
        ranks: devices among which pixels are divided.
        compiled: whether convolutions of a plain decoder take in activations and sums.
    """
    if decoder.linear_stages is not None:
        return list(_deep_compression(decoder, decoder.linear_stages, samples, latent, ranks))
    if decoder.plain:
        return list(_plain(decoder, samples, latent, ranks, compiled))
    frames, rows, columns = latent
    window = float(decoder.kernel**2) * (decoder.kernel if decoder.time > 1 else 1)
    channels = [float(count) for count in reversed(decoder.channels)]
    pixels = samples * frames * rows * columns / ranks
    ops = [*_convolution("decoder.input", pixels, channels[0], float(decoder.latent), window)]
    for block in range(2):
        for half in range(2):
            ops += _convolution(f"decoder.middle.{block}.{half}", pixels, channels[0], channels[0], window)
    ops += _attends(samples * frames / ranks, float(rows * columns), channels[0])
    grown = 1
    for stage, (before, width) in enumerate(pairwise([channels[0], *channels])):
        for block in range(decoder.blocks):
            inputs = before if block == 0 else width
            ops += _convolution(f"decoder.{stage}.{block}.0", pixels, width, inputs, window)
            ops += _convolution(f"decoder.{stage}.{block}.1", pixels, width, width, window)
        if stage < len(channels) - 1:
            # Frames after the first double in the first stages, until the decoder's ratio is reached.
            doubled = 2.0 - 1.0 / frames if grown < decoder.time else 1.0
            grown *= 2 if grown < decoder.time else 1
            frames, pixels = frames * doubled, pixels * 4 * doubled
            ops += _convolution(f"decoder.{stage}.up", pixels, width, width, window)
    return [*ops, *_convolution("decoder.output", pixels, 3.0, channels[-1], window)]


def _plain(
    decoder: LatentDecoder,
    samples: float,
    latent: tuple[float, float, float],
    ranks: float,
    compiled: bool,
) -> Iterator[Op]:
    """A decoder of convolutions and their activations alone (madebyollin/taesd, taesd.py: Decoder)."""
    channels = [float(count) for count in reversed(decoder.channels)]
    pixels, window = samples * latent[1] * latent[2] / ranks, float(decoder.kernel**2)
    yield _product("decoder.input", "convolution", pixels, channels[0], decoder.latent, window)
    for stage, width in enumerate(channels):
        if stage:
            pixels *= 4
            yield _product(f"decoder.{stage}.up", "convolution", pixels, width, channels[stage - 1], window)
        for block in range(decoder.blocks if stage < len(channels) - 1 else 1):
            for number in range(3):
                name = f"decoder.{stage}.{block}.{number}"
                yield _product(name, "convolution", pixels, width, width, window)
            if not compiled:
                yield _around(f"decoder.{stage}.{block}", pixels * width, 3 * ACTIVATED + ADDED)
    yield _product("decoder.output", "convolution", pixels, 3.0, channels[-1], window)


def _deep_compression(
    decoder: LatentDecoder,
    linear: int,
    samples: float,
    latent: tuple[float, float, float],
    ranks: float,
) -> Iterator[Op]:
    """A decoder without group norms: `linear` stages of linear attention, then residual blocks.

    Each stage but the innermost begins with a convolution at its own width and resolution, and a shortcut
    (diffusers, autoencoder_dc.py: Decoder, DCUpBlock2d, ResBlock, EfficientViTBlock).
    """
    channels = [float(count) for count in reversed(decoder.channels)]
    pixels, window = samples * latent[1] * latent[2] / ranks, float(decoder.kernel**2)
    yield _product("decoder.input", "convolution", pixels, channels[0], decoder.latent, window)
    for stage, width in enumerate(channels):
        if stage:
            pixels *= 4
            before = channels[stage - 1]
            yield _product(f"decoder.{stage}.up", "convolution", pixels, width, before, window)
            scaled = SCALED * before / width
            yield _around(f"decoder.{stage}.up", pixels * width, scaled + SHORTCUT)
        for block in range(decoder.blocks):
            name = f"decoder.{stage}.{block}"
            if stage < linear:
                yield from _linear_block(name, pixels, width, samples)
                continue
            for half in range(2):
                yield _product(f"{name}.{half}", "convolution", pixels, width, width, window)
            yield _around(name, pixels * width, ACTIVATED + WIDE_NORM + ADDED)
    yield _around("decoder.output", pixels * channels[-1], WIDE_NORM + ACTIVATED)
    yield _product("decoder.output", "convolution", pixels, 3.0, channels[-1], window)


def _linear_block(name: str, pixels: float, width: float, samples: float) -> Iterator[Op]:
    """Linear attention over two scales, and a gated MLP with a convolution of each channel between."""
    widths = {"attention": 3 * width, "mlp": MLP_GATES * width}
    yield _product(f"{name}.qkv", "gemm", pixels, 3 * width, width)
    yield _depthwise(f"{name}.scale", pixels * widths["attention"], widths["attention"] * SCALE**2)
    yield _product(f"{name}.scale", "gemm", pixels, 3 * width, HEAD)
    heads = 2 * width / HEAD
    for side, n, k in (("state", HEAD, pixels / samples), ("read", pixels / samples, HEAD)):
        yield Product(name=f"{name}.{side}", groups=samples * heads, m=HEAD + 1, n=n, k=k, weights=False)
    yield _around(f"{name}.attention", pixels * 2 * widths["attention"], LINEAR)
    yield _product(f"{name}.out", "gemm", pixels, width, 2 * width)
    yield _product(f"{name}.mlp.up", "gemm", pixels, widths["mlp"], width)
    yield _depthwise(f"{name}.mlp", pixels * widths["mlp"], widths["mlp"] * 9)
    yield _around(f"{name}.mlp", pixels * widths["mlp"], ACTIVATED + (ACTIVATED + ADDED) / 2)
    yield _product(f"{name}.mlp.down", "gemm", pixels, width, widths["mlp"] / 2)
    yield _around(name, pixels * width, 2 * (WIDE_NORM + ADDED))


def _product(
    name: str, kind: str, pixels: float, outputs: float, inputs: float, window: float = 1.0
) -> Product:
    depth = inputs * window
    return Product(
        name=name, kind=kind, m=pixels, n=outputs, k=depth, window=window, parameters=outputs * depth
    )


def _depthwise(name: str, elements: float, parameters: float) -> MemoryBound:
    moved_bytes = WIDTH * 2 * elements
    return MemoryBound(
        name=f"{name}.depthwise", kind="depthwise", bytes=moved_bytes, parameters=parameters, launches=1.0
    )


def _around(name: str, elements: float, passes: float) -> MemoryBound:
    launches = passes / 2
    return MemoryBound(
        name=f"{name}.around",
        kind="elementwise",
        bytes=WIDTH * passes * elements,
        launches=launches,
        starts=launches,
    )


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
