"""Memory of structures: what their layers and combinations of levers hold is added for each choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwmodels.records import record
from planner.lever_space import LeverSpace
from planner.offload import fits_tiers
from simulator.layout.parameters import Parameters, parameters
from simulator.layout.stages import Stages
from simulator.plan import Choice, Plans
from simulator.training.activations import Kept, held_activations
from simulator.training.lever_memory import (
    STEP_GRAPHS,
    has_partner,
    largest,
    partner_layer,
)
from simulator.training.memory import StageMemory, memory


@record()
class Footprint:
    """Memory of structures, without activations and what a combination of levers holds."""

    space: LeverSpace
    plans: Plans
    stages: Stages
    counts: Parameters
    memory: StageMemory

    @classmethod
    def of(cls, space: LeverSpace, plans: Plans) -> Footprint:
        """Compute the memory of structures; levers of ``plans`` are not read."""
        setting = space.setting
        no_graphs = np.full(len(plans), Choice["graphs"].index("none"), dtype=np.int64)
        plain = replace(plans, graphs=no_graphs, overlap_expert=np.zeros_like(plans.overlap_expert))
        stages = Stages.of(setting, plain)
        counts = parameters(setting, plain, stages)
        return cls(space, plans, stages, counts, memory(setting, plain, stages, counts))

    def take(self, rows: np.ndarray) -> Footprint:
        """The memory of some of the structures."""
        plans = self.plans.take(rows)
        if self.memory.tiers:
            return Footprint.of(self.space, plans)
        part = self.memory.take(rows)
        return Footprint(self.space, plans, part.layout, self.counts.take(rows), part)

    def with_levers(self, plans: Plans) -> Footprint:
        """The same structures with other levers."""
        # Kept activations lie off the device too where state may.
        return Footprint.of(self.space, plans) if self.memory.tiers else replace(self, plans=plans)

    def fits(
        self,
        usable_bytes: float,
        kept: np.ndarray,
        gone: np.ndarray,
        again: np.ndarray | None = None,
        uses: np.ndarray | None = None,
        captured: Mapping[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Whether plans fit that keep and discard bytes of a layer of each kind, shape (..., plans).

        Args:
            usable_bytes: of a device.
            kept: bytes of a layer that keeps all, shape (kinds, plans).
            gone: those that are recomputed, shape (..., kinds, plans).
            again: bytes while a layer is computed again, where whole layers are; by default those discarded.
            uses: the place of each plan's combination in ``LeverSpace.memory_uses``, shape (..., plans); by
                default combinations hold nothing.
            captured: bytes of a layer that graphs of parts replay, shape (kinds, plans), by the name of the
                graphs; needed with ``uses``.
        """
        setting, whole = self.space.setting.of(self.plans), again is not None
        left = np.moveaxis(kept - gone, -2, 0), np.moveaxis(gone if again is None else again, -2, 0)
        layers = [Kept(*sizes) for sizes in zip(*left, self.memory.gradients, strict=True)]
        flight, loss = self.memory.flight, self.memory.loss
        activations = held_activations(setting, self.plans, self.stages, layers, flight, loss)
        if uses is not None:
            activations = activations + self._partners(uses, kept, whole)
        activations = activations * setting.framework.memory.fragmentation
        graphs = 0.0 if uses is None else self._graphs(uses, activations, captured or {})
        peak = self.memory.peak_with(activations, setting.cluster.device.memory_bytes, graphs)
        return (peak <= usable_bytes) & fits_tiers(setting.cluster, self.memory)

    def _partners(self, uses: np.ndarray, kept: np.ndarray, whole: bool) -> np.ndarray:
        """Bytes of a second micro batch's layer, shape (..., classes, plans)."""
        overlaps = np.array([each.overlaps for each in self.space.memory_uses])[uses]
        if whole or not overlaps.any():
            return np.zeros(self.stages.index.shape)
        overlapped = replace(self.plans, overlap_expert=np.ones_like(self.plans.overlap_expert))
        layer = partner_layer(self.stages.layers, self.stages.groups, list(kept))
        beside = (overlaps & has_partner(self.space.setting, overlapped))[..., np.newaxis, :]
        return np.where(beside, layer, 0.0)

    def _graphs(
        self, uses: np.ndarray, activations: np.ndarray, captured: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Bytes of CUDA graphs, shape (..., classes, plans)."""
        taken = np.zeros(activations.shape)
        for number, each in enumerate(self.space.memory_uses):
            mine = (uses == number)[..., np.newaxis, :]
            if each.graphs == "none" or not mine.any():
                continue
            if each.graphs == "step":
                beside = STEP_GRAPHS * (self.memory.standing + activations)
            else:
                beside = largest(self.stages.layers, list(captured[each.graphs]))
            taken = np.where(mine, beside, taken)
        return taken
