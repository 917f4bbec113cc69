"""Overlaps of tensor-parallel traffic that no launcher has a flag for, one entry each."""

from __future__ import annotations

from typing import Literal

import numpy as np

from core.records import record
from simulator.plan import Choice

ENGINES_SLOW = {"nvidia": 0.23, "amd": 0.28}
"""Share of their speed that kernels lose beside transfers by copy engines, by vendor. AMD: products beside
collectives by DMA engines reach 72 % of what ideal overlap gains on MI300X (Agrawal et al. 2024, arXiv
2412.14335, abstract). NVIDIA: what kernels lose beside NCCL (``overlap.SLOWDOWN``), without the 16 of 132
multiprocessors that it takes."""


@record()
class TensorForm:
    """How one word of ``overlap_tensor`` runs tensor-parallel collectives beside kernels.

    Attributes:
        beside: the product that reads or writes what a collective carries, or all kernels of the pass.
        pieces: pieces of a collective; the first or the last has no kernels beside it. 1: all has.
        halves: the kernels are launched in halves of a micro batch, which read all weights each.
        gathers: whether gathers of inputs run beside kernels too, or reductions alone.
        mover: what moves the bytes and so slows kernels: multiprocessors, copy engines, or memory of its own.
        source: publication.
    """

    beside: Literal["product", "pass"]
    pieces: int = 1
    halves: bool = False
    gathers: bool = True
    mover: Literal["multiprocessors", "engines", "memory"] = "multiprocessors"
    source: str = ""

    @property
    def share(self) -> float:
        """Share of a collective that has kernels beside it."""
        return 1.0 - 1.0 / self.pieces if self.beside == "product" else 1.0

    def slows(self, collectives: np.ndarray, vendor: str) -> np.ndarray:
        """Share of their speed that kernels lose, given what they lose beside collectives of the library."""
        if self.mover == "multiprocessors":
            return collectives
        limit = ENGINES_SLOW.get(vendor, 1.0) if self.mover == "engines" else 0.0
        return np.minimum(collectives, limit)


FORMS = {
    # One kernel sends tiles as they are done, or waits for each: a piece has 128 of 8,192 tokens.
    "flux": TensorForm("product", pieces=64, mover="engines", source="Chang et al., Flux (arXiv 2406.06858)"),
    # Tiles of a product trigger the DMA of its reduction, memories add: proposed hardware.
    "t3": TensorForm(
        "product", pieces=64, gathers=False, mover="memory", source="Pati et al., T3 (arXiv 2401.16677)"
    ),
    "domino": TensorForm("pass", halves=True, source="Wang et al., Domino (arXiv 2409.15241)"),
    # A block reads the residual before the last block's collective: another model, whose quality is an input.
    "ladder": TensorForm("pass", source="Zhang et al., Ladder Residual (arXiv 2501.06589)"),
}
"""By word of ``overlap_tensor``."""


def chosen_forms(overlap_tensor: np.ndarray) -> list[tuple[TensorForm, np.ndarray]]:
    """Forms that plans state, each with the plans, shape (plans,)."""
    words = Choice["overlap_tensor"]
    stated = ((form, overlap_tensor == words.index(word)) for word, form in FORMS.items())
    return [(form, plans) for form, plans in stated if plans.any()]
