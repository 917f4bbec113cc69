"""Lower bounds of the steps of shapes, whatever their levers and however their state is sharded.

The first is the work of the busiest stage, the closer one the passes through the pipeline and the model's
ends. No layer takes less than under its fastest combination with all passes beside a partner and no waits of
``simulator.training.expected``. A shape repeats whole layers where it fits in no memory without.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from core.records import record
from planner.training.lever_bytes import LayerBytes
from planner.training.lever_space import LeverSpace
from planner.training.lever_times import LayerPrices
from planner.training.rules import ROUNDING
from planner.training.structures import recomputing
from simulator.layout.model_ops import ModelOps
from simulator.layout.parameters import Parameters, parameters
from simulator.layout.stages import Stages
from simulator.plan import Choice, Plans
from simulator.setting import Setting
from simulator.training.activations import Kept, boundary_bytes, kept_by_layers
from simulator.training.analytic import passes_time
from simulator.training.components import KnownStep, LayerSeconds, end_seconds
from simulator.training.counts import micro_batches
from simulator.training.memory import least_memory


def busiest_stage(setting: Setting, plans: Plans, stages: Stages, layers: LayerSeconds) -> np.ndarray:
    """Seconds of the busiest stage of each plan, below which no step is, shape (plans,)."""
    work = (stages.layers * (layers.forward + layers.backward)).sum(axis=1)
    return np.where(stages.present, work, 0.0).max(axis=0) * micro_batches(setting, plans)


@record()
class ShapeBounds:
    """Bounds of plans whose state is not sharded.

    ``least`` are the least seconds of a layer of each kind forward, backward and recomputed, shape (3, kinds,
    plans).
    """

    prices: LayerPrices
    usable_bytes: float
    plans: Plans
    least: np.ndarray

    @classmethod
    def of(cls, space: LeverSpace, usable_bytes: float, plans: Plans) -> ShapeBounds:
        """Price the layers of shapes; levers, sharding and placement of ``plans`` are not read."""
        plain = dict.fromkeys(("zero", "shard_group", "policy"), np.zeros(len(plans), dtype=np.int64))
        plans = recomputing(replace(plans, **plain), Choice["recompute"].index("none"))
        prices = LayerPrices(space, plans)
        return cls(prices, usable_bytes, plans, prices.least_seconds(plans))

    @property
    def space(self) -> LeverSpace:
        """The levers."""
        return self.prices.space

    @cached_property
    def busiest(self) -> np.ndarray:
        """Seconds of the busiest stage, shape (plans,)."""
        setting = self.space.setting
        return busiest_stage(
            setting, self.plans, Stages.of(setting, self.plans), LayerSeconds(*self.least[:2])
        )

    def passes(self, rows: np.ndarray, zero: int = 3) -> dict[str, np.ndarray]:
        """Seconds of all passes of some of the shapes by kind of recomputation, shape (rows,).

        Infinite where a kind does not fit. ``zero`` is the highest kind of sharding.
        """
        plans, setting = self.plans.take(rows), self.space.setting.of(self.plans)
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        fits = self._fits(plans, stages, counts, zero)
        partly = np.any([mask for kind, mask in fits.items() if kind != "full"], axis=0)
        forward, backward, repeated = self.least[..., rows]
        layers = LayerSeconds(forward, backward + np.where(partly, 0.0, repeated))
        ends = end_seconds(ModelOps.of(setting, plans, ()))
        seconds = passes_time(setting, plans, KnownStep(stages, counts, layers, ends))
        return {kind: np.where(mask, seconds, np.inf) for kind, mask in fits.items()}

    def _fits(self, plans: Plans, stages: Stages, counts: Parameters, zero: int) -> dict[str, np.ndarray]:
        """Which shapes may fit with each kind of recomputation, shape (plans,)."""
        setting, layer_bytes = self.space.setting.of(plans), LayerBytes.of(self.space, plans)
        layers, saved = kept_by_layers(setting, plans, stages.groups, counts.ops), layer_bytes.of_plans
        leaving = ("gradients", "optimizer") if len(plans.policies) > 1 else ()
        masks: dict[str, np.ndarray] = {}
        for kind in self.space.recompute:
            freed = np.zeros_like(saved)
            if kind == "selective":
                freed = layer_bytes.discarded.max(axis=0)[:, layer_bytes.index]
            elif kind == "full":
                freed = saved - boundary_bytes(setting, plans)
            left = [
                Kept(stored - gone, gone, layer.gradients)
                for stored, gone, layer in zip(saved, freed, layers, strict=True)
            ]
            least = least_memory(setting, plans, stages, counts, leaving, left, zero)
            masks[kind] = least <= self.usable_bytes * (1 + ROUNDING)
        return masks
