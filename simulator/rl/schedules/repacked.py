"""Phases in turn; the last answers are packed on few replicas, and the devices of the others go on."""

from __future__ import annotations

from typing import ClassVar, Literal

from simulator.rl.schedules.base import PHASES, Phases, RlSchedule, RlTiming


class TailRepacked(RlSchedule):
    """Devices that the drain leaves idle make the forward passes over answers that are done.

    An ideal repacking: answers move at no cost, and all idle time of the drain serves the forward passes.
    """

    name: ClassVar[str] = "tail-repacked"
    rule: ClassVar[str] = "devices that the drain leaves idle make the forward passes"
    source: ClassVar[str] = "Sheng et al. 2025, Laminar (arXiv 2510.12633), repack"
    kind: Literal["tail-repacked"] = "tail-repacked"

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        hidden = min(phases.scoring, max(phases.generation - phases.busy_generation, 0.0))
        return self.timed(phases, phases.total - hidden, PHASES)
