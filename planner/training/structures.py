"""Structures of a search, with what all choices of their levers share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.records import record
from planner.training.footprints import Footprint
from planner.training.lever_bytes import LayerBytes
from planner.training.lever_space import LeverSpace
from planner.training.lever_times import LayerPrices, Table
from simulator.layout.model_ops import ModelOps
from simulator.plan import Plans
from simulator.training import step_time
from simulator.training.components import KnownStep, LayerSeconds, end_seconds


@record()
class Structures:
    """Plans without their levers, and their memory; times of their layers once they are priced.

    ``ends`` are seconds of the model's two ends, shape (2, plans), where step times were asked for.
    """

    space: LeverSpace
    plans: Plans
    bytes: LayerBytes
    footprint: Footprint
    prices: Table | None = None
    ends: LayerSeconds | None = None

    @classmethod
    def of(cls, space: LeverSpace, plans: Plans) -> Structures:
        """Compute the memory of plans."""
        return cls(space, plans, LayerBytes.of(space, plans), Footprint.of(space, plans))

    def priced(self, prices: LayerPrices | None = None) -> Structures:
        """The structures with the times of their layers, from prices of all their shapes if there are any."""
        return replace(self, prices=Table.of(prices or LayerPrices(self.space, self.plans), self.plans))

    @property
    def table(self) -> Table:
        """Times of the layers."""
        return (
            Table.of(LayerPrices(self.space, self.plans), self.plans) if self.prices is None else self.prices
        )

    def __len__(self) -> int:
        return len(self.plans)

    def take(self, rows: np.ndarray) -> Structures:
        """Some of the structures."""
        ends = None if self.ends is None else self.ends.take(rows)
        prices = None if self.prices is None else self.prices.take(rows)
        footprint = self.footprint.take(rows)
        return Structures(self.space, footprint.plans, self.bytes.take(rows), footprint, prices, ends)

    def recomputing(self, kind: int) -> Structures:
        """The structures with a kind of recomputation."""
        plans = recomputing(self.plans, kind)
        return replace(self, plans=plans, footprint=self.footprint.with_levers(plans))

    def with_ends(self) -> Structures:
        """The structures with the times of the model's ends, which recomputation does not change."""
        setting = self.space.setting.of(self.plans)
        return replace(self, ends=end_seconds(ModelOps.of(setting, self.plans, ())))

    def step_time(self, layers: LayerSeconds, rows: np.ndarray | None = None) -> np.ndarray:
        """Step times with these times of layers, s, of the structures at ``rows``; by default of all."""
        if self.ends is None:
            return self.with_ends().step_time(layers, rows)
        plans, stages, counts = self.plans, self.footprint.stages, self.footprint.counts
        step = KnownStep(stages, counts, layers, self.ends)
        if rows is not None:
            plans = plans.take(rows)
            step = KnownStep(stages.take(rows), counts.take(rows), layers, self.ends.take(rows))
        return step_time(self.space.setting, plans, step)


def recomputing(plans: Plans, kind: int) -> Plans:
    """Plans with a kind of recomputation."""
    return replace(plans, recompute=np.full(len(plans), kind, dtype=np.int64))
