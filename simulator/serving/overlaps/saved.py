"""Seconds that an overlap saves in a step: one formula, of numbers or of arrays.

The event engine asks for one step at a time, where arrays of numpy cost ten times as much as numbers; steady
states ask for thousands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simulator.serving.overlaps.base import Overlap


class Extremes(NamedTuple):
    """The smaller and the larger of two values."""

    smaller: Callable[[Any, Any], Any]
    larger: Callable[[Any, Any], Any]


NUMBERS, ARRAYS = Extremes(min, max), Extremes(np.minimum, np.maximum)


class OverlapFigures(NamedTuple):
    """Parameters of an overlap as numbers; of several, as arrays. The defaults save nothing."""

    network: Any = 0.0
    """Share of all-reduces that may be hidden; likewise of decodes' attention and of experts' exchanges."""
    memory: Any = 0.0
    exchange: Any = 0.0
    hides_memory: Any = 0.0
    """1 where decodes' attention runs beside products."""
    pieces: Any = 1.0
    kept_network: Any = 1.0
    kept_exchange: Any = 1.0
    longest: Any = 1.0
    skipped: Any = 0.0
    prompts_only: Any = 0.0
    most_tokens: Any = 0.0
    """Tokens of a step from which it does not overlap."""
    gaps: Any = 0.0
    """Launches and gaps of the further pieces, s."""


class PieceTimes(NamedTuple):
    """Seconds of a step, by what takes them."""

    uncut: Any
    """Products, norms and communication in one piece."""
    cut: Any
    """The same in pieces."""
    network: Any
    """All-reduces of the pieces."""
    every: Any
    """Exchange of the pieces, in ``cut``."""
    exchange: Any
    """Exchange of the pieces that is charged."""
    memory: Any
    """Attention of decodes."""
    chunks: Any
    """Attention of prompts."""


def figures_of(overlap: Overlap, most_tokens: int, gaps: float) -> OverlapFigures:
    """Parameters of an overlap as numbers.

    Args:
        overlap: what runs beside what.
        most_tokens: tokens of a step from which it does not overlap.
        gaps: launches and gaps of all layers, once for each further piece, s.
    """
    hidden = {kind: 1.0 - getattr(overlap.exposed, kind) for kind in overlap.hides}
    return OverlapFigures(
        **hidden,
        hides_memory=float("memory" in overlap.hides),
        pieces=overlap.pieces,
        kept_network=overlap.kept_network,
        kept_exchange=overlap.kept_exchange,
        longest=overlap.longest,
        skipped=overlap.skipped_prompt,
        prompts_only=float(overlap.prompts_only),
        most_tokens=most_tokens,
        gaps=(overlap.pieces - 1) * gaps,
    )


def hidden_seconds(
    figures: OverlapFigures,
    compute: Any,
    memory: Any,
    network: Any,
    exchange: Any,
    extremes: Extremes = NUMBERS,
) -> Any:
    """Seconds of a step that run beside its other kernels, no more than those take.

    Args:
        figures: of the overlap.
        compute, memory, network, exchange: seconds of products and prompts' attention, of decodes' attention,
            of all-reduces and of experts' exchanges.
        extremes: of numbers or of arrays.
    """
    smaller, larger = extremes
    rest = compute + (memory + network + exchange)
    # The longer of both goes on alone.
    hidden = (
        figures.network * smaller(network, larger(rest - network, 0.0))
        + figures.memory * smaller(memory, larger(rest - memory, 0.0))
        + figures.exchange * smaller(exchange, larger(rest - exchange, 0.0))
    )
    return smaller(hidden, compute + (1.0 - figures.hides_memory) * memory)


def saved_seconds(
    figures: OverlapFigures,
    seconds: Any,
    prompt: Any,
    tokens: Any,
    times: PieceTimes,
    extremes: Extremes = NUMBERS,
) -> Any:
    """Seconds that a step with at least as many tokens as pieces is shorter.

    Negative where the pieces cost more than they hide.

    Args:
        figures: of the overlap.
        seconds: of the step without overlap.
        prompt, tokens: of the rank with most tokens.
        times: of the step's parts.
        extremes: of numbers or of arrays.
    """
    smaller, larger = extremes
    uncut, cut, network, every, exchange, memory, chunks = times
    # The wait for the slowest rank is part of all-reduces here, and of the launches in a price.
    compute = larger(cut - network - every, 0.0) + chunks
    skipped = figures.skipped * (prompt / larger(tokens, 1.0) * (cut - every) + chunks)
    dropped = skipped + (1.0 - figures.kept_network) * network + (1.0 - figures.kept_exchange) * exchange
    left = figures.kept_network * network, figures.kept_exchange * exchange
    hidden = hidden_seconds(figures, compute, memory, *left, extremes)
    # What is charged is at most the step: its longest stream stays.
    hidden = smaller(hidden, (1.0 - figures.longest) * larger(seconds - dropped, 0.0))
    return smaller(dropped, seconds) + hidden - (cut - uncut) - figures.gaps
