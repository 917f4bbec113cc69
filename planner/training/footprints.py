"""Memory of structures: what their layers and combinations of levers hold is added for each choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from core.records import record
from planner.training.lever_space import LeverSpace
from planner.training.offload import fits_tiers
from simulator.layout.parameters import Parameters, parameters
from simulator.layout.stages import Stages
from simulator.plan import Choice, Plans, taken
from simulator.training.activations import Kept, LossMemory, held_activations
from simulator.training.fixed_memory import FixedMemory
from simulator.training.lever_memory import (
    STEP_GRAPHS,
    has_partner,
    largest,
    partner_layer,
)
from simulator.training.memory import StageMemory, memory


@record()
class Footprint:
    """Memory of structures, without activations and what a combination of levers holds.

    ``fixed`` do not depend on the levers of layers. ``loss``, ``flight`` and ``gradients`` are those of
    ``StageMemory``; ``off_device`` is all memory, where state may lie off the device.
    """

    space: LeverSpace
    plans: Plans
    stages: Stages
    counts: Parameters
    fixed: FixedMemory
    loss: LossMemory
    flight: np.ndarray
    gradients: tuple[np.ndarray, ...]
    off_device: StageMemory | None

    @classmethod
    def of(cls, space: LeverSpace, plans: Plans) -> Footprint:
        """Compute the memory of structures; levers of ``plans`` are not read."""
        setting = space.setting
        no_graphs = np.full(len(plans), Choice["graphs"].index("none"), dtype=np.int64)
        plain = replace(plans, graphs=no_graphs, overlap_expert=np.zeros_like(plans.overlap_expert))
        stages = Stages.of(setting, plain)
        counts = parameters(setting, plain, stages)
        usage = memory(setting, plain, stages, counts)
        off_device = usage if usage.tiers else None
        passes = usage.loss, usage.flight, usage.gradients
        return cls(space, plans, stages, counts, usage.fixed, *passes, off_device)

    def take(self, rows: np.ndarray) -> Footprint:
        """The memory of some of the structures."""
        plans = self.plans.take(rows)
        if self.off_device:
            return Footprint.of(self.space, plans)
        return Footprint(
            self.space,
            plans,
            self.stages.take(rows),
            self.counts.take(rows),
            self.fixed.take(rows),
            LossMemory(*(taken(part, rows) for part in self.loss)),
            taken(self.flight, rows),
            tuple(part[rows] for part in self.gradients),
            None,
        )

    def with_levers(self, plans: Plans) -> Footprint:
        """The same structures with other levers."""
        # Kept activations lie off the device too where state may.
        return Footprint.of(self.space, plans) if self.off_device else replace(self, plans=plans)

    def fits(
        self,
        usable_bytes: float,
        saved: np.ndarray,
        gone: np.ndarray,
        again: np.ndarray | None = None,
        uses: np.ndarray | None = None,
        captured: Mapping[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Whether plans fit that keep and discard bytes of a layer of each kind, shape (..., plans).

        Args:
            usable_bytes: of a device.
            saved: bytes of a layer that keeps all, shape (kinds, plans).
            gone: those that are recomputed, shape (..., kinds, plans).
            again: bytes while a layer is computed again, where whole layers are; by default those discarded.
            uses: the place of each plan's combination in ``LeverSpace.memory_uses``, shape (..., plans); by
                default combinations hold nothing.
            captured: bytes of a layer that graphs of parts replay, shape (kinds, plans), by the name of the
                graphs; needed with ``uses``.
        """
        setting, full = self.space.setting.of(self.plans), again is not None
        left = np.moveaxis(saved - gone, -2, 0), np.moveaxis(gone if again is None else again, -2, 0)
        layers = [Kept(*sizes) for sizes in zip(*left, self.gradients, strict=True)]
        activations = held_activations(setting, self.plans, self.stages, layers, self.flight, self.loss)
        if uses is not None:
            activations = activations + self._partners(uses, saved, full)
        activations = activations * setting.framework.memory.fragmentation
        graphs = 0.0 if uses is None else self._graphs(uses, activations, captured or {})
        peak = self.fixed.peak_with(activations, setting.cluster.device.memory_bytes, graphs)
        fits = peak <= usable_bytes
        return fits & fits_tiers(setting.cluster, self.off_device) if self.off_device else fits

    def _partners(self, uses: np.ndarray, saved: np.ndarray, full: bool) -> np.ndarray:
        """Bytes of a second micro batch's layer, shape (..., classes, plans)."""
        overlaps = np.array([each.overlaps for each in self.space.memory_uses])[uses]
        if full or not overlaps.any():
            return np.zeros(self.stages.index.shape)
        overlapped = replace(self.plans, overlap_expert=np.ones_like(self.plans.overlap_expert))
        layer = partner_layer(self.stages.layers, self.stages.groups, list(saved))
        beside = (overlaps & has_partner(self.space.setting, overlapped))[..., np.newaxis, :]
        return np.where(beside, layer, 0.0)

    def _graphs(
        self, uses: np.ndarray, activations: np.ndarray, captured: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Bytes of CUDA graphs, shape (..., classes, plans)."""
        bytes_ = np.zeros(activations.shape)
        for number, each in enumerate(self.space.memory_uses):
            mine = (uses == number)[..., np.newaxis, :]
            if each.graphs == "none" or not mine.any():
                continue
            if each.graphs == "step":
                beside = STEP_GRAPHS * (self.fixed.constant + activations)
            else:
                beside = largest(self.stages.layers, list(captured[each.graphs]))
            bytes_ = np.where(mine, beside, bytes_)
        return bytes_
