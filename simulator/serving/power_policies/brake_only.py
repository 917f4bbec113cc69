"""No caps: only the power brake protects the row."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.power_policies.base import Clocks, PowerPolicy


class BrakeOnly(PowerPolicy):
    """Replicas keep their clocks until the row exceeds its budget."""

    name: ClassVar[str] = "brake-only"
    rule: ClassVar[str] = "full clocks; the brake alone protects the row's budget"
    source: ClassVar[str] = "baseline of Patel et al., arXiv:2308.12908"

    def level(self, before: int, used: float) -> int:
        """See `PowerPolicy.level`."""
        return 0

    @property
    def clocks(self) -> tuple[Clocks, ...]:
        """See `PowerPolicy.clocks`."""
        return ((None, None),)
