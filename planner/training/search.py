"""Search: the plans that fit, ranked by time, cost or energy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from core.errors import InputError, UnknownNameError
from core.records import record
from planner.training.blame import no_shape
from planner.training.candidates import CandidateRule, Candidates, Enumeration, chunks
from planner.training.constraints import Constraints
from planner.training.families import FAMILIES, layouts
from planner.training.levers import Bar, Chooser
from planner.training.metrics import OBJECTIVES, Metrics
from planner.training.nearest import ROUNDING, nearest_first
from planner.training.proven import BEYOND, UNPROVEN, ProvenChooser, proven_rule
from planner.training.rules import MEMORY, PLACEMENT_RULES, RULES, STRUCTURE, structure
from planner.training.shortfall import Shortfall, explain
from planner.training.shortlist import (
    DUPLICATE_WITHIN,
    MOST_WEIGHED,
    POOL,
    ShortlistRow,
    recommended_row,
    shortlist,
    within_reach,
)
from planner.training.space import Space
from simulator.packing import PACKINGS
from simulator.plan import Plans, concatenate
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.training import Step, predict, step_time
from simulator.training.memory import StageMemory, memory

if TYPE_CHECKING:
    from planner.training.finalists import Finalists

LEVERS = "levers"
"""Rule that leaves each structure its fastest levers; named where reports explain removed candidates."""

KEPT = 31 << 20
"""Bytes of a block just small enough to raise glibc's thresholds when it is freed (at most 32 MiB)."""


@record()
class SearchResult:
    """The best plans, in order, and the counts of removed and scored candidates.

    ``plans``, ``step``, ``memory`` and ``metrics`` hold one row per plan, the best first; all are empty where
    nothing fits, and ``shortfall`` says why.
    """

    space: Space
    objective: str
    plans: Plans
    step: Step
    memory: StageMemory
    metrics: Metrics
    candidates: int
    scored: int
    removed: dict[str, int]
    """Candidates that each rule removed, in the order of the rules; with ``scored`` they add up to all."""
    shortfall: Shortfall | None
    rows: tuple[ShortlistRow, ...] = ()
    """Why each plan is shown, where alternatives were asked for; else the plans are the raw order."""

    @property
    def setting(self) -> Setting:
        """What the plans share, the cluster cut to the devices in use."""
        return self.space.setting

    @property
    def runner_up_gap(self) -> float | None:
        """Gap of the second plan over the best, as a share; None with fewer than two plans."""
        values = getattr(self.metrics, OBJECTIVES[self.objective])
        return float(values[1] / values[0] - 1) if len(values) > 1 else None


def search(
    setting: Setting,
    devices: int,
    constraints: Constraints | None = None,
    objective: str = "time",
    top: int = 10,
    progress: Callable[[float], None] | None = None,
    headroom: float = 0.0,
    alternatives: bool = False,
    keep: Callable[[Plans, np.ndarray], None] | None = None,
    offload: bool = False,
    recommended: bool = False,
) -> SearchResult:
    """Score every plan that the rules keep and return the best.

    Plans that are equal to within rounding (7 digits) rank in the order of the space, simplest first.
    ``alternatives`` returns a short list of different plans instead (``shortlist``), ``recommended``
    its first row alone. Plans that a bound rules out are not scored, unless all are kept (``nearest``).

    Args:
        setting: model, cluster, workload and framework.
        devices: devices to use, of those that the cluster has.
        constraints: fields of the plan to hold or to limit.
        objective: figure to optimise, one of ``OBJECTIVES``.
        top: number of plans to return.
        progress: called periodically with the share of candidates decided so far.
        headroom: share of a device's memory that plans leave free.
        alternatives: fold near duplicates and add the best plan of each family.
        keep: called with every block of scored plans and the figure that ranks them.
        offload: try placements of optimizer and gradients on host and SSDs too (``offload``).
        recommended: return the plan that one would launch, whatever ``top`` and ``alternatives`` are.

    Raises:
        InputError: no candidate has a valid shape, for instance a batch or heads that do not divide; or
            ``top`` or ``devices`` cannot be used; or micro batches differ in tokens; or nodes have no host
            memory for ``offload``.
        UnknownNameError: no such objective.
    """
    _check(setting, objective, top)
    _keep_freed_memory()
    space = Space.of(setting, devices, constraints, headroom, offload)
    chooser = _chooser(space)
    enumeration, finalists = Enumeration(space, _rules(space, offload)), _finalists(space, objective)
    top, alternatives = (1, True) if recommended else (top, alternatives)
    bounded = objective == "time" and type(chooser) is Chooser and not (keep or finalists)
    kind = _Recommended if recommended and bounded else _Ranking
    ranking = kind(space, objective, top, alternatives, keep, finalists is not None)
    fitting = beyond = 0
    blocks = chunks(enumeration.blocks())
    if chooser and bounded:
        blocks = nearest_first(enumeration, chooser, ranking.bar, bool(ranking.families))
    for structures in blocks:
        for plans, values in _timed(space.setting, structures, objective, chooser, ranking.bar):
            credible, figures = _credible(space, plans, values, objective)
            beyond += len(plans) - len(credible)
            ranking.offer(credible, figures)
        fitting = chooser.fitting if chooser else fitting + len(structures)
        if progress:
            progress((fitting + sum(enumeration.removed.values())) / space.candidates)
    removed = _removed(space, enumeration, chooser, beyond)
    scored = fitting - beyond
    if not fitting and not removed[MEMORY] and not removed.get(UNPROVEN):
        raise InputError(no_shape(space, removed))
    ranked, rows = ranking.shown(space, top, finalists)
    return _result(space, objective, ranked, rows, finalists, scored, removed)


def _result(
    space: Space,
    objective: str,
    ranked: Plans,
    rows: tuple[ShortlistRow, ...],
    finalists: Finalists | None,
    scored: int,
    removed: dict[str, int],
) -> SearchResult:
    """The ranked plans with their steps, memory and figures."""
    step = finalists.step(ranked) if finalists else predict(space.setting, ranked)
    return SearchResult(
        space=space,
        objective=objective,
        plans=ranked,
        step=step,
        memory=memory(space.setting, ranked, step.stages, step.parameters),
        metrics=Metrics.of(space.setting, ranked, step),
        candidates=space.candidates,
        scored=scored,
        removed=removed,
        shortfall=None if scored else explain(space),
        rows=rows,
    )


def _finalists(space: Space, objective: str) -> Finalists | None:
    """Who times plans without a closed form; None where all have one."""
    if all(get_schedule(name).has_closed_form for name in space.schedule_names):
        return None
    from planner.training.finalists import Finalists

    return Finalists(space.setting, objective)


def _chooser(space: Space) -> Chooser | None:
    """The chooser of levers; None where there is nothing to choose."""
    if not space.levers or not space.levers.varies:
        return None
    keeps = space.constraints.keeps
    if keeps is None:
        return Chooser(space.levers, space.usable_bytes)
    return ProvenChooser(space.levers, space.usable_bytes, keeps=keeps)


def _rules(space: Space, offload: bool) -> tuple[CandidateRule, ...]:
    """The rules of a search."""
    varies = space.levers is not None and space.levers.varies
    # Memory without that of layers is computed once for all choices of levers.
    rules = PLACEMENT_RULES if offload else RULES[:-1] if varies else RULES
    shapes, memory_rules, keeps = structure(space), rules[len(STRUCTURE) :], space.constraints.keeps
    return (*shapes, *(() if keeps is None else (proven_rule(keeps, not varies),)), *memory_rules)


def _removed(space: Space, enumeration: Enumeration, chooser: Chooser | None, beyond: int) -> dict[str, int]:
    """Candidates that each rule removed."""
    removed = dict(enumeration.removed)
    if chooser:
        removed |= _removed_levers(space, chooser, removed)
    return {**removed, BEYOND: beyond} if space.constraints.keeps else removed


def _removed_levers(space: Space, chooser: Chooser, removed: dict[str, int]) -> dict[str, int]:
    """Candidates removed among choices of levers, and those that then fit in no memory."""
    count, causes = chooser.space.count, {LEVERS: chooser.fitting * (chooser.space.count - 1)}
    if isinstance(chooser, ProvenChooser):
        causes[UNPROVEN] = removed[UNPROVEN] + chooser.unproven * count
    others = sum(({**removed, **causes}).values()) - removed[MEMORY]
    return {**causes, MEMORY: space.candidates - chooser.fitting - others}


def _check(setting: Setting, objective: str, top: int) -> None:
    """Refuse what no search can answer.

    Raises:
        InputError: ``top`` cannot be used, stragglers, or micro batches that differ in tokens.
        UnknownNameError: no such objective.
    """
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    if top < 1:
        raise InputError(f"top must be 1 or more, found {top}")
    if setting.stragglers:
        raise InputError("a search assumes healthy devices; use simulate or whatif", "stragglers")
    packing = PACKINGS.get(setting.training.packing or "pack")
    if setting.training.drawn is not None and (packing is None or not packing.fills):
        # The memory of candidates is that of micro batches of equal tokens.
        raise InputError(
            f"a search takes pack or balance, found {setting.training.packing!r}; simulate takes all",
            "workload.packing",
        )


def _keep_freed_memory() -> None:
    """Let glibc keep freed arrays: on memory that it returned, a new array costs a page fault per 4 KiB.

    glibc returns free memory beyond twice its largest mapped and freed block (malloc.c, "dynamic mmap
    threshold"). The block here is never written, so it takes no memory; other allocators ignore it.
    """
    np.empty(KEPT, np.uint8)


def _timed(
    setting: Setting, plans: Plans, objective: str, chooser: Chooser | None, bar: Bar
) -> Iterator[tuple[Plans, np.ndarray]]:
    """Candidates with their levers and the minimised figure, block by block."""
    if chooser is None:
        yield plans, _measure(setting, plans, objective)
        return
    for timed_plans, seconds in chooser.timed(plans, bar):
        yield timed_plans, seconds if objective == "time" else _measure(setting, timed_plans, objective)


def _measure(setting: Setting, plans: Plans, objective: str) -> np.ndarray:
    """The minimised figure, shape (plans,); only money and energy need a breakdown of the step."""
    if objective == "time":
        return step_time(setting, plans)
    return getattr(Metrics.of(setting, plans, predict(setting, plans)), OBJECTIVES[objective])


def _credible(space: Space, plans: Plans, values: np.ndarray, objective: str) -> tuple[Plans, np.ndarray]:
    """The plans that promise no more than the measured runs let expect, with their figures."""
    keeps = space.constraints.keeps
    if keeps is None or not keeps.shortest_s:
        return plans, values
    seconds = values if objective == "time" else step_time(space.setting, plans)
    rows = np.flatnonzero(seconds >= keeps.shortest_s)
    return plans.take(rows), values[rows]


class _Ranking:
    """The best plans offered so far, and those of each family where alternatives are asked for."""

    def __init__(
        self,
        space: Space,
        objective: str,
        top: int,
        alternatives: bool,
        keep: Callable[[Plans, np.ndarray], None] | None,
        bounds: bool,
    ) -> None:
        fields = "recompute", *space.values
        self.best = _Best(max(top, POOL) if alternatives or bounds else top, fields)
        # One row: the first of a short list, which is among the best plans of all.
        families = FAMILIES if alternatives and top > 1 else ()
        self.families = {family.name: (family, _Best(1, fields)) for family in families}
        self.top, self.alternatives, self.keep = top, alternatives, keep
        self.every = keep is not None or objective != "time"
        # The event engine moves the plans that it times.
        self.weighs = alternatives and not bounds
        self.other: float = np.inf
        """The slowest time of another layout that may fill a row."""

    @property
    def slowest(self) -> float:
        """The slowest time that would be read of a plan of no family: for a row, or beside one."""
        if self.every or not self.weighs or len(self.best.values) < MOST_WEIGHED:
            return np.inf if self.every else self.best.bar
        rows = (within_reach(self.best.values), self.other, *(best.bar for _, best in self.families.values()))
        return min(self.best.bar, max(rows) * (1 + DUPLICATE_WITHIN + ROUNDING))

    def bar(self, plans: Plans) -> np.ndarray:
        """The slowest time that would still be shown of each plan."""
        slowest = np.full(len(plans), self.slowest)
        for family, best in self.families.values():
            slowest = np.where(family.holds(plans), np.maximum(slowest, best.bar), slowest)
        return slowest

    def offer(self, plans: Plans, values: np.ndarray) -> None:
        """Offer scored plans, if there are any."""
        if not len(plans):
            return
        self.best.offer(plans, values)
        if self.weighs and self.best.plans is not None:
            firsts = np.sort(np.unique(layouts(self.best.plans), return_index=True)[1])
            few = len(firsts) < self.top
            self.other = np.inf if few else float(self.best.values[firsts[self.top - 1]])
        if self.keep:
            self.keep(plans, values)
        for family, best in self.families.values():
            best.offer_best(plans, values, family.holds(plans))

    def shown(
        self, space: Space, top: int, finalists: Finalists | None
    ) -> tuple[Plans, tuple[ShortlistRow, ...]]:
        """The plans to show, in order, and why each is shown where alternatives are asked for.

        Raises:
            InputError: the event engine would take too long for all plans, which only it can time.
        """
        if self.best.plans is None:
            return Candidates(space, {}).take(slice(0, 0)).plans, ()
        plans, values = self.best.plans, self.best.values
        best_of = {
            name: (best.plans, best.values)
            for name, (_, best) in self.families.items()
            if best.plans is not None
        }
        if finalists:
            plans, values = finalists.ranked(plans, values, top)
            best_of = {name: finalists.ranked(*best, 1) for name, best in best_of.items()}
            if not len(plans) and finalists.problem:
                raise finalists.problem
            best_of = {name: best for name, best in best_of.items() if len(best[0])}
        if self.alternatives:
            return shortlist(space.setting, plans, values, best_of, top)
        return plans.take(np.arange(min(top, len(plans)))), ()


class _Recommended(_Ranking):
    """The plan that one would launch, and those that are weighed for it."""

    @property
    def slowest(self) -> float:
        """The slowest time of a plan that is weighed."""
        values = self.best.values
        return np.inf if len(values) < MOST_WEIGHED else within_reach(values, 0.0)

    def shown(
        self, space: Space, top: int, finalists: Finalists | None
    ) -> tuple[Plans, tuple[ShortlistRow, ...]]:
        """The plan that one would launch."""
        if self.best.plans is None:
            return super().shown(space, top, finalists)
        rows = np.flatnonzero(self.best.values <= self.slowest)
        plans, values = self.best.plans.take(rows), self.best.values[rows]
        return plans.take(np.array([recommended_row(space.setting, plans, values)])), ()


class _Best:
    """The best plans offered so far, in order; of equal ones those that come first in the space."""

    def __init__(self, top: int, fields: Sequence[str]) -> None:
        self.top, self.fields = top, fields
        self.plans: Plans | None = None
        self.values = np.zeros(0)

    @property
    def bar(self) -> float:
        """The figure of the last plan; infinite while there is room."""
        return float(self.values[-1]) if len(self.values) == self.top else np.inf

    def offer(self, plans: Plans, values: np.ndarray) -> None:
        """Offer more plans."""
        if self.plans is not None:
            better = np.flatnonzero(self._ranks(values) <= np.float32(self.bar))
            plans, values = plans.take(better), values[better]
            plans, values = concatenate([self.plans, plans]), np.concatenate([self.values, values])
        ranks = self._ranks(values)
        if len(ranks) > self.top:
            rows = np.flatnonzero(ranks <= np.partition(ranks, self.top - 1)[self.top - 1])
            plans, values, ranks = plans.take(rows), values[rows], ranks[rows]
        columns = [getattr(plans, name) for name in self.fields if hasattr(plans, name)]
        order = np.lexsort((*reversed(columns), ranks))[: self.top]
        self.plans, self.values = plans.take(order), values[order]

    def offer_best(self, plans: Plans, values: np.ndarray, holds: np.ndarray) -> None:
        """Offer the plans for which a mask holds."""
        rows = np.flatnonzero(holds & (self._ranks(values) <= np.float32(self.bar)))
        if len(rows):
            self.offer(plans.take(rows), values[rows])

    @staticmethod
    def _ranks(values: np.ndarray) -> np.ndarray:
        """Equal plans may differ in the last bits; single precision makes them equal."""
        return values.astype(np.float32)
