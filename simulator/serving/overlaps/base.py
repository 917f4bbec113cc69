"""Interface of overlaps inside a step: the pieces of a step, and what hides behind what."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from core.loading import Strict
from core.quantities import Few


class ExposedShares(Strict):
    """Share of each kind's time that a step is longer by, although it runs beside products.

    Both kernels of a pair slow down: a kernel that runs at speed p with a share r of the device costs the
    other one r / p of its own time. 1 hides nothing, so a table of ones changes nothing.
    """

    network: float = Field(0.33, ge=0, le=1, description="share of all-reduces that is not hidden")
    memory: float = Field(0.5, ge=0, le=1, description="share of decodes' attention that is not hidden")
    exchange: float = Field(0.33, ge=0, le=1, description="share of experts' exchanges that is not hidden")


class Overlap(Strict):
    """One way to rearrange a step. Its fields are its parameters (`overlap.options`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        hides: kinds that run beside products.
        prompts_only: steps without prompt tokens stay as they are.
        kept_network: share of the all-reduces that the model still has.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    hides: ClassVar[tuple[str, ...]] = ("network",)
    prompts_only: ClassVar[bool] = False
    kept_network: ClassVar[float] = 1.0

    pieces: Few = Field(1, description="pieces of a step that run beside each other")
    exposed: ExposedShares = Field(
        default_factory=lambda: ExposedShares.model_validate({}),
        description="shares of time that are not hidden",
    )

    @property
    def skipped_prompt(self) -> float:
        """Share of a prompt's products and attention that the model does not compute."""
        return 0.0

    @property
    def kept_state(self) -> float:
        """KV bytes of a token over those of the model as it is."""
        return 1.0

    @property
    def kept_exchange(self) -> float:
        """Share of the exchange with experts that is left."""
        return 1.0

    @property
    def longest(self) -> float:
        """Share of a step that its longest stream takes at least: products, and each kind beside them."""
        return 1.0 / (1.0 + len(self.hides))
