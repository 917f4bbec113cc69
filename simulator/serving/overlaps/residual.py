"""Steps with less to do: moved residual edges, tokens that stay with their experts, prompts half computed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

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
    kept_network: ClassVar[float] = 0.5


class CoherentExperts(Overlap):
    """A token goes on from the rank of its expert, whose next expert often lies on the same rank.

    One exchange a layer instead of two, less the tokens that stay; `python -m benchmarks.placement` prints
    the share by affinity and ranks.
    """

    name: ClassVar[str] = "coherent-experts"
    rule: ClassVar[str] = "one exchange with experts instead of two, of tokens that do not stay on their rank"
    source: ClassVar[str] = "Yao et al., ExFlow (arXiv 2401.08383)"
    hides: ClassVar[tuple[str, ...]] = ()
    share: float = Field(
        default=0.5, ge=0, le=1, description="bytes left of two exchanges of experts in order"
    )

    @property
    def kept_exchange(self) -> float:
        """See `Overlap.kept_exchange`."""
        return self.share


class SwiftKv(Overlap):
    """KV of the later layers is computed from an early layer: prompts skip the rest, and layers share KV.

    Quality is an input. It helps where prompts are much longer than outputs.
    """

    name: ClassVar[str] = "swiftkv"
    rule: ClassVar[str] = "prompts skip a share of all layers, and a token has less KV"
    source: ClassVar[str] = "Qiao et al., SwiftKV (arXiv 2410.03960)"
    hides: ClassVar[tuple[str, ...]] = ()
    skipped: float = Field(default=0.5, ge=0, le=1, description="share of a prompt's layers that are skipped")
    state: float = Field(default=0.375, gt=0, le=1, description="KV bytes of a token that are left")

    @property
    def skipped_prompt(self) -> float:
        """See `Overlap.skipped_prompt`."""
        return self.skipped

    @property
    def kept_state(self) -> float:
        """See `Overlap.kept_state`."""
        return self.state
