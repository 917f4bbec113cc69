"""The levers of each structure: the fastest combination with which it fits, for each kind of recomputation.

A structure is a candidate without its levers: degrees, micro batch, schedule and sharding. Levers that change
the time of a layer alone are looked up in a table of distinct shapes. A structure is first timed as if it
repeated nothing, a lower bound of all its choices; recomputation is tried only where that bound is among the
plans that would be shown. Memory is computed once a structure, without the bytes that its layers keep; these
are added for each set of modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.lever_sets import ModuleSets
from planner.lever_space import SEARCHED, LeverSpace, may_overlap
from planner.lever_times import Table
from planner.offload import fits_tiers
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Choice, Plans
from simulator.training import step_time
from simulator.training.components import LayerSeconds
from simulator.training.counts import micro_batches
from simulator.training.memory import (
    Kept,
    StageMemory,
    boundary_bytes,
    held_activations,
    in_flight,
    memory,
)

BATCH = 1 << 11
"""Structures whose sets of modules are tried at once."""

Bar = Callable[[Plans], np.ndarray]
"""The slowest step time of interest of each plan, s, shape (plans,)."""
Timed = tuple[Plans, np.ndarray]
"""Plans with their levers, and their step times, s, shape (plans,)."""

NONE, SELECTIVE, FULL = (Choice["recompute"].index(word) for word in ("none", "selective", "full"))


@dataclass
class Chooser:
    """Chooses the levers of structures.

    Attributes:
        space: the levers.
        usable_bytes: memory of a device that a plan may fill.
        fitting: structures that fit so far, counted once for each kind of recomputation.
    """

    space: LeverSpace
    usable_bytes: float
    fitting: int = 0

    def timed(self, plans: Plans, bar: Bar) -> Iterator[Timed]:
        """Yield plans with their fastest levers and their step times, s, block by block.

        Structures that no choice brings below ``bar`` are left out.

        Args:
            plans: structures.
            bar: the slowest time of interest.
        """
        table = Table.of(self.space, plans)
        footprint = _Footprint.of(self.space, self._recomputing(plans, NONE))
        fits = self._fitting(table, footprint)
        self.fitting += sum(int(np.count_nonzero(mask)) for mask in fits.values())
        combination, layers = self._fastest(table, plans, whole=False)
        rows = self._worth(footprint, layers, fits, bar)
        if not len(rows):
            return
        plans, table, combination = plans.take(rows), table.take(rows), combination[rows]
        fits = {kind: mask[rows] for kind, mask in fits.items()}
        layers = LayerSeconds(layers.forward[:, rows], layers.backward[:, rows])
        bare = self._recomputing(plans, NONE)
        bound = step_time(self.space.setting, bare, layers)
        if "none" in fits and fits["none"].any():
            bare_rows = np.flatnonzero(fits["none"])
            yield self._with(bare.take(bare_rows), combination[bare_rows], -1), bound[bare_rows]
        if "full" in fits:
            whole = self._recomputing(plans, FULL)
            promising = self._near(whole, bound, bar)
            promising = promising[fits["full"][promising]]
            if len(promising):
                chosen, table_promising = whole.take(promising), table.take(promising)
                combination, layers = self._fastest(table_promising, chosen, whole=True)
                yield self._with(chosen, combination, -1), step_time(self.space.setting, chosen, layers)
        if "selective" in fits:
            named, waiting = self._recomputing(plans, SELECTIVE), np.argsort(bound, kind="stable")
            waiting = waiting[fits["selective"][waiting]]
            for start in range(0, len(waiting), BATCH):
                batch = np.sort(waiting[start : start + BATCH])
                batch = batch[self._near(named.take(batch), bound[batch], bar)]
                if len(batch):
                    yield from self._with_modules(table.take(batch), named.take(batch), bar)

    @staticmethod
    def _recomputing(plans: Plans, kind: int) -> Plans:
        return replace(plans, recompute=np.full(len(plans), kind, dtype=np.int64))

    @staticmethod
    def _near(plans: Plans, bound: np.ndarray, bar: Bar) -> np.ndarray:
        """Indices of the plans whose bound is below the bar, compared as ranks are: to 7 digits."""
        return np.flatnonzero(bound.astype(np.float32) <= bar(plans).astype(np.float32))

    def _fastest(self, table: Table, plans: Plans, whole: bool) -> tuple[np.ndarray, LayerSeconds]:
        """The fastest combination of each plan, and the times of its layers."""
        overlaps = may_overlap(self.space.setting, plans)
        chosen = np.zeros(len(plans), dtype=np.int64)
        forward, backward = np.zeros((2, table.forward.shape[1], len(plans)))
        for context in (False, True):
            rows = np.flatnonzero(overlaps == context)
            if len(rows):
                best, times = table.fastest(whole, context)
                places = table.index[rows]
                chosen[rows] = best[places]
                forward[:, rows], backward[:, rows] = times.forward[:, places], times.backward[:, places]
        return chosen, LayerSeconds(forward, backward)

    def _worth(
        self, footprint: _Footprint, layers: LayerSeconds, fits: dict[str, np.ndarray], bar: Bar
    ) -> np.ndarray:
        """Indices of structures that fit, whose busiest stage takes no longer than the bar."""
        both = (layers.forward + layers.backward)[np.newaxis]
        stage = (footprint.stages.layers * both).sum(axis=1).max(axis=0)
        busy = stage * micro_batches(self.space.setting, footprint.plans)
        worth = np.zeros(len(busy), dtype=bool)
        for kind, mask in fits.items():
            rows = np.flatnonzero(mask & ~worth)
            plans = self._recomputing(footprint.plans.take(rows), Choice["recompute"].index(kind))
            worth[rows[self._near(plans, busy[rows], bar)]] = True
        return np.flatnonzero(worth)

    def _fitting(self, table: Table, footprint: _Footprint) -> dict[str, np.ndarray]:
        """Which structures fit with each kind of recomputation, at most, shape (plans,)."""
        kept, kinds = table.kept[:, table.index], self.space.recompute
        masks: dict[str, np.ndarray] = {}
        if "none" in kinds:
            masks["none"] = self._fits(footprint, kept, np.zeros_like(kept))
        if "selective" in kinds:
            masks["selective"] = self._fits(footprint, kept, table.discarded.max(axis=0)[:, table.index])
        if "full" in kinds:
            boundary = boundary_bytes(self.space.setting, footprint.plans)
            masks["full"] = self._fits(footprint, kept, kept - boundary, kept)
        return masks

    def _fits(
        self, footprint: _Footprint, kept: np.ndarray, discarded: np.ndarray, again: np.ndarray | None = None
    ) -> np.ndarray:
        """Whether plans fit that keep and discard bytes of a layer of each kind, shape (..., plans).

        Args:
            footprint: memory of the plans.
            kept: bytes of a layer that keeps all, shape (kinds, plans).
            discarded: those that are recomputed, shape (..., kinds, plans).
            again: bytes while a layer is computed again; by default those discarded.
        """
        left = np.moveaxis(kept - discarded, -2, 0), np.moveaxis(discarded if again is None else again, -2, 0)
        layers = [Kept(between, reopened) for between, reopened in zip(*left, strict=True)]
        return footprint.fits(layers, self.usable_bytes)

    def _with(self, plans: Plans, combination: np.ndarray, modules: np.ndarray | int) -> Plans:
        """The plans with combinations and codes of module sets."""
        columns = {}
        for name in SEARCHED:
            values = [getattr(chosen, name) for chosen in self.space.combinations]
            words = Choice.get(name)
            codes = np.array([words.index(value) for value in values] if words else values, dtype=np.int64)
            columns[name] = codes[combination]
        codes = np.zeros(len(plans), dtype=np.int64) + modules
        return replace(plans, **columns, recompute_modules=codes)

    def _with_modules(self, table: Table, plans: Plans, bar: Bar) -> Iterator[Timed]:
        """Yield structures with the fastest set of modules that fits."""
        overlaps = may_overlap(self.space.setting, plans)
        for context in (False, True):
            mine = np.flatnonzero(overlaps == context)
            if not len(mine):
                continue
            shapes, places = np.unique(table.index[mine], return_inverse=True)
            sets, own = ModuleSets.of(table, shapes, context), plans.take(mine)
            footprint = _Footprint.of(self.space, own)
            fits = self._fits(footprint, sets.kept[:, places], sets.discarded[..., places])
            number, owner = np.nonzero(sets.undominated(fits, places))
            shape = places[owner]
            layers = LayerSeconds(sets.forward[number, :, shape].T, sets.backward[number, :, shape].T)
            seconds = step_time(self.space.setting, own.take(owner), layers)
            # The fastest row of each structure; of equal ones the set with the fewest modules.
            order = np.lexsort((number, seconds.astype(np.float32), owner))
            best = order[np.flatnonzero(np.diff(owner[order], prepend=-1) > 0)]
            number, shape = number[best], shape[best]
            combination = sets.combination[number, shape]
            yield self._with(own.take(owner[best]), combination, sets.codes[number]), seconds[best]


@dataclass(frozen=True)
class _Footprint:
    """Memory of structures, activations apart."""

    space: LeverSpace
    plans: Plans
    stages: Stages
    memory: StageMemory
    flight: np.ndarray

    @classmethod
    def of(cls, space: LeverSpace, plans: Plans) -> _Footprint:
        stages = Stages.of(space.setting, plans)
        usage = memory(space.setting, plans, stages, parameters(space.setting, plans, stages))
        return cls(space, plans, stages, usage, in_flight(space.setting, plans, stages))

    def fits(self, kept: list[Kept], usable_bytes: float) -> np.ndarray:
        """Whether plans fit whose layers keep that much, shape (..., plans)."""
        setting = self.space.setting.of(self.plans)
        activations = (
            held_activations(setting, self.plans, self.stages, kept, self.flight)
            * setting.framework.memory.fragmentation
        )
        peak = self.memory.peak_with(activations, setting.cluster.device.memory_bytes)
        return (peak <= usable_bytes) & fits_tiers(setting.cluster, self.memory)
