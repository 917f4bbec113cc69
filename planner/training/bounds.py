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
from planner.training.lever_times import least_seconds
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

NONE = Choice["recompute"].index("none")


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

    space: LeverSpace
    usable_bytes: float
    plans: Plans
    least: np.ndarray

    @classmethod
    def of(cls, space: LeverSpace, usable_bytes: float, plans: Plans) -> ShapeBounds:
        """Price the layers of shapes; levers, sharding and placement of ``plans`` are not read."""
        plain = dict.fromkeys(("zero", "shard_group", "policy"), np.zeros(len(plans), dtype=np.int64))
        plans = recomputing(replace(plans, **plain), NONE)
        return cls(space, usable_bytes, plans, least_seconds(space, plans))

    @cached_property
    def busiest(self) -> np.ndarray:
        """Seconds of the busiest stage, shape (plans,)."""
        setting = self.space.setting
        return busiest_stage(
            setting, self.plans, Stages.of(setting, self.plans), LayerSeconds(*self.least[:2])
        )

    def passes(self, rows: np.ndarray, zero: int = 3) -> np.ndarray:
        """Seconds of all passes of some of the shapes, shape (rows,); infinite where none fits.

        ``zero`` is the highest kind of sharding.
        """
        plans, setting = self.plans.take(rows), self.space.setting.of(self.plans)
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        forward, backward, repeated = self.least[..., rows]
        partly, some = self._fits(plans, stages, counts, zero)
        ends = end_seconds(ModelOps.of(setting, plans, ()))
        layers = LayerSeconds(forward, backward + np.where(partly, 0.0, repeated))
        seconds = passes_time(setting, plans, KnownStep(stages, counts, layers, ends))
        return np.where(some, seconds, np.inf)

    def _fits(
        self, plans: Plans, stages: Stages, counts: Parameters, zero: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which shapes may fit without recomputing whole layers, and which at all, shape (plans,)."""
        kinds, setting = self.space.recompute, self.space.setting.of(plans)
        layers = kept_by_layers(setting, plans, stages.groups, counts.ops)
        leaving = ("gradients", "optimizer") if len(plans.policies) > 1 else ()

        def holds(gone: np.ndarray) -> np.ndarray:
            left = [
                Kept(layer.between_passes - freed, freed, layer.gradients)
                for layer, freed in zip(layers, gone, strict=True)
            ]
            least = least_memory(setting, plans, stages, counts, leaving, left, zero)
            return least <= self.usable_bytes * (1 + ROUNDING)

        partly = full = np.zeros(len(plans), dtype=bool)
        layer_bytes = LayerBytes.of(self.space, plans)
        if kinds != ("full",):
            discarded = layer_bytes.discarded.max(axis=0)[:, layer_bytes.index]
            partly = holds(discarded if "selective" in kinds else np.zeros(discarded.shape))
        if "full" in kinds:
            full = holds(layer_bytes.of_plans - boundary_bytes(setting, plans))
        return partly, partly | full
