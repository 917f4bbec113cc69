"""The levers of each structure: the fastest combination with which it fits, for each kind of recomputation.

A structure is a candidate without its levers: degrees, micro batch, schedule and sharding. Levers that change
the time of a layer alone are looked up in a table of distinct shapes. A structure is first timed as if it
repeated nothing, a lower bound of all its choices; recomputation is tried only where that bound is among the
plans that would be shown. Memory is computed once a structure, without the bytes that its layers keep; these
are added for each set of modules. A combination that does not fit gives way to the fastest one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from planner.training.bounds import busiest_stage
from planner.training.lever_sets import ModuleSets
from planner.training.lever_space import LeverSpace, Modules
from planner.training.lever_times import LayerPrices, Table
from planner.training.structures import Structures, recomputing
from simulator.plan import Choice, Plans
from simulator.training.activations import boundary_bytes
from simulator.training.components import LayerSeconds

BATCH = 1 << 12
"""Structures whose sets of modules are tried at once."""

Bar = Callable[[Plans], np.ndarray]
"""The slowest step time of interest of each plan, s, shape (plans,)."""
Timed = tuple[Plans, np.ndarray]
"""Plans with their levers, and their step times, s, shape (plans,)."""

NONE, SELECTIVE, FULL = (Choice["recompute"].index(word) for word in ("none", "selective", "full"))


class FittingSets(NamedTuple):
    """Sets of modules that fit and that no other beats, each of one structure, shape (sets,).

    Attributes:
        owner: the structure.
        size: place of the set among all, which are in the order of their size.
        combination: its fastest combination of the other levers.
        codes: code of its modules.
        layers: times of its layers.
        settled: whether no faster set failed by what its combination holds, shape (structures,).
    """

    owner: np.ndarray
    size: np.ndarray
    combination: np.ndarray
    codes: np.ndarray
    layers: LayerSeconds
    settled: np.ndarray


@dataclass
class Chooser:
    """Chooses the levers of structures.

    Attributes:
        space: the levers.
        usable_bytes: memory of a device that a plan may fill.
        fitting: structures that fit so far, counted once for each kind of recomputation.
        prices: of the layers of all structures, where they are known before.
    """

    space: LeverSpace
    usable_bytes: float
    fitting: int = 0
    prices: LayerPrices | None = None

    def timed(self, plans: Plans, bar: Bar) -> Iterator[Timed]:
        """Yield plans with their fastest levers and their step times, s, block by block.

        Structures that no choice brings below ``bar`` are left out.

        Args:
            plans: structures.
            bar: the slowest time of interest.
        """
        bare = Structures.of(self.space, recomputing(plans, NONE))
        fits = self._fitting(bare)
        self.fitting += sum(int(np.count_nonzero(mask)) for mask in fits.values())
        rows = np.flatnonzero(np.any(list(fits.values()), axis=0))
        if not len(rows):
            return
        bare, fits = bare.take(rows).priced(self.prices), {kind: mask[rows] for kind, mask in fits.items()}
        _, layers, _ = self._fastest(bare.table, bare.plans, full=False)
        fits = self._worth(bare, layers, fits, bar)
        rows = np.flatnonzero(np.any(list(fits.values()), axis=0))
        if not len(rows):
            return
        bare = bare.take(rows).with_ends()
        fits = {kind: mask[rows] for kind, mask in fits.items()}
        bound = bare.step_time(layers.take(rows))
        if "none" in fits and fits["none"].any():
            unrepeated = np.flatnonzero(fits["none"])
            yield from self._combined(bare.take(unrepeated), bound[unrepeated])
        if "full" in fits:
            promising = self._near(recomputing(bare.plans, FULL), bound, bar)
            promising = promising[fits["full"][promising]]
            if len(promising):
                yield from self._combined(bare.take(promising).recomputing(FULL))
        if "selective" in fits:
            named, waiting = recomputing(bare.plans, SELECTIVE), np.argsort(bound, kind="stable")
            waiting = waiting[fits["selective"][waiting]]
            for start in range(0, len(waiting), BATCH):
                batch = np.sort(waiting[start : start + BATCH])
                batch = batch[self._near(named.take(batch), bound[batch], bar)]
                if len(batch):
                    yield from self._with_modules(bare.take(batch).recomputing(SELECTIVE))

    @staticmethod
    def _near(plans: Plans, bound: np.ndarray, bar: Bar) -> np.ndarray:
        """Indices of the plans whose bound is below the bar, compared as ranks are: to 7 digits."""
        return np.flatnonzero(bound.astype(np.float32) <= bar(plans).astype(np.float32))

    def _fastest(
        self, table: Table, plans: Plans, full: bool, among: np.ndarray | bool = True
    ) -> tuple[np.ndarray, LayerSeconds, np.ndarray]:
        """The fastest combination of each plan, the times of its layers, and which have one."""
        overlaps = self.space.may_overlap(plans)
        combination, runs = np.zeros(len(plans), dtype=np.int64), np.zeros(len(plans), dtype=bool)
        forward, backward = np.zeros((2, table.forward.shape[1], len(plans)))
        for context in (False, True):
            rows = np.flatnonzero(overlaps == context)
            if len(rows):
                best, times = table.fastest(full, context, among)
                places = table.index[rows]
                combination[rows] = best[places]
                forward[:, rows], backward[:, rows] = times.forward[:, places], times.backward[:, places]
                runs[rows] = (self._open(None if full else (), context) & among).any()
        return combination, LayerSeconds(forward, backward), runs

    def _open(self, modules: Modules | None, overlaps: bool) -> np.ndarray:
        """Which combinations go with modules and plans that may overlap or not, shape (combinations,)."""
        return self.space.allowed(modules) & self.space.in_context(overlaps)

    def _combined(self, structures: Structures, bound: np.ndarray | None = None) -> Iterator[Timed]:
        """Yield plans that recompute nothing or whole layers, each with the fastest combination that fits.

        Args:
            structures: those that fit with some combination.
            bound: step times with the fastest combinations, s, where known.
        """
        full = bool(structures.plans.recompute[0] == FULL)
        combination, layers, _ = self._fastest(structures.table, structures.plans, full)
        seconds = structures.step_time(layers) if bound is None else bound
        fits = self._holds(structures, self.space.use_of[combination])
        if fits.any():
            rows = np.flatnonzero(fits)
            yield self._with(structures.plans.take(rows), combination[rows], -1), seconds[rows]
        rest = np.flatnonzero(~fits)
        if not len(rest):
            return
        structures = structures.take(rest)
        fitting: list[tuple[np.ndarray, np.ndarray, LayerSeconds]] = []
        for number in range(len(self.space.memory_uses)):
            among = self.space.use_of == number
            combination, layers, runs = self._fastest(structures.table, structures.plans, full, among)
            holding = np.flatnonzero(runs & self._holds(structures, np.full(len(rest), number)))
            fitting.append((holding, combination[holding], layers.take(holding)))
        owner, combination = (np.concatenate(parts) for parts in list(zip(*fitting, strict=True))[:2])
        if len(owner):
            layers = [layers for _, _, layers in fitting]
            best, seconds = _quickest(structures, owner, np.arange(len(owner)), layers)
            yield self._with(structures.plans.take(owner[best]), combination[best], -1), seconds[best]

    def _holds(self, structures: Structures, uses: np.ndarray) -> np.ndarray:
        """Whether plans that fit with some combination fit with what a given one holds, shape (plans,)."""
        fits = np.array([each.is_free for each in self.space.memory_uses])[uses]
        rows = np.flatnonzero(~fits)
        if len(rows):
            some = structures.take(rows)
            layer_bytes, plans = some.bytes, some.plans
            saved, full = layer_bytes.of_plans, plans.recompute[0] == FULL
            gone = saved - boundary_bytes(self.space.setting, plans) if full else np.zeros_like(saved)
            again, captured = saved if full else None, layer_bytes.captured_of_plans
            fits[rows] = some.footprint.fits(self.usable_bytes, saved, gone, again, uses[rows], captured)
        return fits

    def _worth(
        self, structures: Structures, layers: LayerSeconds, fits: Mapping[str, np.ndarray], bar: Bar
    ) -> dict[str, np.ndarray]:
        """Which structures fit with each kind of recomputation and keep no stage busy beyond the bar."""
        plans, of_stages = (
            structures.plans,
            (self.space.setting, structures.plans, structures.footprint.stages),
        )
        least = busiest_stage(*of_stages, layers)
        worth: dict[str, np.ndarray] = {}
        for kind, mask in fits.items():
            bound, code = least, Choice["recompute"].index(kind)
            if code == FULL:
                bound = busiest_stage(*of_stages, self._fastest(structures.table, plans, full=True)[1])
            rows = np.flatnonzero(mask)
            promising = self._near(recomputing(plans.take(rows), code), bound[rows], bar)
            worth[kind] = np.zeros(len(mask), dtype=bool)
            worth[kind][rows[promising]] = True
        return worth

    def _fitting(self, structures: Structures) -> dict[str, np.ndarray]:
        """Which structures fit with each kind of recomputation, at most, shape (plans,)."""
        layer_bytes, kinds = structures.bytes, self.space.recompute
        saved = layer_bytes.of_plans
        masks: dict[str, np.ndarray] = {}
        if "none" in kinds:
            masks["none"] = self._fits_any(structures, [()], saved, np.zeros_like(saved))
        if "selective" in kinds:
            gone = layer_bytes.discarded.max(axis=0)[:, layer_bytes.index]
            masks["selective"] = self._fits_any(structures, self.space.modules, saved, gone)
        if "full" in kinds:
            boundary = boundary_bytes(self.space.setting, structures.plans)
            masks["full"] = self._fits_any(structures, [None], saved, saved - boundary, saved)
        return masks

    def _fits_any(
        self,
        structures: Structures,
        sets: Sequence[Modules | None],
        saved: np.ndarray,
        gone: np.ndarray,
        again: np.ndarray | None = None,
    ) -> np.ndarray:
        """Whether plans fit with what some combination holds that goes with some set of modules."""
        space, layer_bytes, footprint = self.space, structures.bytes, structures.footprint
        free = np.array([use.is_free for use in space.memory_uses])[space.use_of]
        if any((self._open(modules, False) & free).any() for modules in sets):
            return footprint.fits(self.usable_bytes, saved, gone, again)
        fits = np.zeros(len(footprint.plans), dtype=bool)
        overlaps = space.may_overlap(footprint.plans)
        for context in (False, True):
            runs = np.any([self._open(modules, context) for modules in sets], axis=0)
            for number in sorted(set(space.use_of[runs].tolist())):
                uses = np.full(len(fits), number)
                captured = layer_bytes.captured_of_plans
                holds = footprint.fits(self.usable_bytes, saved, gone, again, uses, captured)
                fits |= holds & (overlaps == context)
        return fits

    def _with(self, plans: Plans, combination: np.ndarray, modules: np.ndarray | int) -> Plans:
        """The plans with combinations and codes of module sets."""
        columns = self.space.columns(self.space.combinations)
        columns = {name: codes[combination] for name, codes in columns.items()}
        codes = np.zeros(len(plans), dtype=np.int64) + modules
        return replace(plans, **columns, recompute_modules=codes)

    def _with_modules(self, structures: Structures) -> Iterator[Timed]:
        """Yield structures with the fastest set of modules that fits."""
        overlaps = self.space.may_overlap(structures.plans)
        for context in (False, True):
            mine = np.flatnonzero(overlaps == context)
            if len(mine):
                yield from self._best_sets(structures.take(mine), context)

    def _best_sets(self, structures: Structures, context: bool) -> Iterator[Timed]:
        """Yield structures that all may overlap, or not, with the fastest set and combination that fits."""
        fitting = self._sets(structures, context)
        settled = np.zeros(len(structures), dtype=bool) if fitting is None else fitting.settled
        if fitting is not None:
            yield from self._best(structures, [fitting], settled)
        rest = np.flatnonzero(~settled)
        if not len(rest) or len(self.space.memory_uses) == 1:
            return
        structures = structures.take(rest)
        numbers = range(len(self.space.memory_uses))
        listed = [self._sets(structures, context, number) for number in numbers]
        yield from self._best(structures, [sets for sets in listed if sets is not None])

    def _best(
        self, structures: Structures, fitting: Sequence[FittingSets], among: np.ndarray | bool = True
    ) -> Iterator[Timed]:
        """Yield those ``among`` the structures that have a fitting set, with the fastest one."""
        rows = [np.flatnonzero((np.zeros(len(structures), bool) | among)[sets.owner]) for sets in fitting]
        if not sum(map(len, rows)):
            return
        owner, size, combination, codes = (
            np.concatenate([parts[subset] for parts, subset in zip(listed, rows, strict=True)])
            for listed in list(zip(*fitting, strict=True))[:4]
        )
        layers = [sets.layers.take(subset) for sets, subset in zip(fitting, rows, strict=True)]
        # Of equal times the first use of memory, then the set with the fewest modules.
        number = np.repeat(np.arange(len(fitting)), [len(subset) for subset in rows])
        rank = number * (len(self.space.modules) + 1) + size
        best, seconds = _quickest(structures, owner, rank, layers)
        yield self._with(structures.plans.take(owner[best]), combination[best], codes[best]), seconds[best]

    def _sets(self, structures: Structures, context: bool, number: int | None = None) -> FittingSets | None:
        """Sets of modules that fit with their fastest combination, or with the fastest of ``number``.

        None where no combination runs.
        """
        use_of, table, footprint = self.space.use_of, structures.table, structures.footprint
        layer_bytes = structures.bytes
        among = True if number is None else use_of == number
        shapes, places = np.unique(table.index, return_inverse=True)
        sets = ModuleSets.of(table, shapes, context, among)
        if not sets.runs.any():
            return None
        saved, gone, runs = (
            layer_bytes.of_plans,
            layer_bytes.discarded[..., layer_bytes.index],
            sets.runs[:, np.newaxis],
        )
        bare = fits = footprint.fits(self.usable_bytes, saved, gone) & runs
        uses = use_of[sets.combination]
        if not all(self.space.memory_uses[each].is_free for each in set(uses.ravel().tolist())):
            captured = layer_bytes.captured_of_plans
            fits = footprint.fits(self.usable_bytes, saved, gone, None, uses[:, places], captured) & runs
        settled = np.ones(len(structures), dtype=bool)
        if bare is not fits:
            settled = ~np.any(sets.undominated(bare, places) & ~fits, axis=0)
        lever_set, owner = np.nonzero(sets.undominated(fits, places))
        shape = places[owner]
        layers = LayerSeconds(sets.forward[lever_set, :, shape].T, sets.backward[lever_set, :, shape].T)
        return FittingSets(
            owner, lever_set, sets.combination[lever_set, shape], sets.codes[lever_set], layers, settled
        )


def _quickest(
    structures: Structures, owner: np.ndarray, rank: np.ndarray, layers: Sequence[LayerSeconds]
) -> tuple[np.ndarray, np.ndarray]:
    """The fastest choice of each structure that has any, and the step times of all choices, s.

    Args:
        structures: the structures.
        owner: the structure of each choice, shape (choices,).
        rank: order of the choices of a structure whose times are equal, shape (choices,).
        layers: times of their layers, to be joined.
    """
    joined = LayerSeconds(*(np.concatenate(parts, axis=1) for parts in zip(*layers, strict=True)))
    seconds = structures.step_time(joined, owner)
    order = np.lexsort((rank, seconds.astype(np.float32), owner))
    return order[np.flatnonzero(np.diff(owner[order], prepend=-1) > 0)], seconds
