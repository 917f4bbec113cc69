"""Models whose residual edges are moved, so that an all-reduce runs beside the next block."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.overlaps.base import Overlap


class Ladder(Overlap):
    """A block reads the residual before the last all-reduce, which so runs beside it. Quality is an input."""

    name: ClassVar[str] = "ladder"
    rule: ClassVar[str] = "all-reduces beside the next block"
    source: ClassVar[str] = "Zhang et al., Ladder Residual (arXiv 2501.06589)"


class Kraken(Overlap):
    """Sub-layers of a layer's degree run in parallel: one all-reduce a layer, beside its attention."""

    name: ClassVar[str] = "kraken"
    rule: ClassVar[str] = "half of the all-reduces, each beside a block"
    source: ClassVar[str] = "Prabhakar et al., Kraken (arXiv 2408.07802)"
    kept: ClassVar[float] = 0.5
