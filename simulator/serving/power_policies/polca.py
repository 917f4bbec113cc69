"""POLCA: two thresholds on a row's power, clocks capped by priority."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from core.quantities import Positive
from simulator.serving.power_policies.base import Clocks, PowerPolicy


class Polca(PowerPolicy):
    """Above the first threshold, low-priority servers slow down; above the second, further, then all servers.

    Caps are lifted one by one where the power is below the threshold by ``margin``.
    """

    name: ClassVar[str] = "polca"
    rule: ClassVar[str] = "two thresholds: low-priority servers slow down first, high-priority ones last"
    source: ClassVar[str] = "Patel et al., POLCA, arXiv:2308.12908 (ASPLOS 2024)"
    first: float = Field(0.80, gt=0, le=1, description="first threshold, share of the budget")
    second: float = Field(0.89, gt=0, le=1, description="second threshold, share of the budget")
    margin: float = Field(0.05, ge=0, lt=1, description="how far below a threshold its cap is lifted")
    low_mhz: Positive = Field(1275.0, description="clock of low priority above the first threshold")
    lowest_mhz: Positive = Field(1110.0, description="clock of low priority above the second threshold")
    high_mhz: Positive = Field(1305.0, description="clock of high priority, where that was not enough")

    def level(self, before: int, used: float) -> int:
        """See `PowerPolicy.level`."""
        if used > self.second:
            return min(max(before, 1) + 1, 3)
        if before >= 2:
            return before - 1 if used < self.second - self.margin else before
        if used > self.first:
            return 1
        return 0 if used < self.first - self.margin else before

    @property
    def clocks(self) -> tuple[Clocks, ...]:
        """See `PowerPolicy.clocks`."""
        capped = ((self.low_mhz, None), (self.lowest_mhz, None), (self.lowest_mhz, self.high_mhz))
        return ((None, None), *capped)
