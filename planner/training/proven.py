"""Searches that keep to mechanisms that measured runs used together.

Mechanisms of a structure (a candidate without its levers) are checked by a rule of the enumeration, and those
of its levers where they are chosen: structures with the same mechanisms share the levers that are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from planner.training.candidates import CandidateRule, Candidates
from planner.training.constraints import Keeps
from planner.training.lever_space import SEARCHED, Combination, LeverSpace, Modules
from planner.training.levers import Bar, Chooser, Timed
from planner.training.mechanisms import JOINT, MECHANISMS, mechanisms, words_of
from planner.training.rules import SHAPE, STATE
from simulator.plan import COLUMNS, Plan, Plans
from simulator.setting import Setting

UNPROVEN = "unproven"
"""Rule of plans whose mechanisms no measured run had together."""

BEYOND = "beyond"
"""Rule of plans that promise far more than the fastest measured run near them."""

OF_LEVERS = (*SEARCHED, "recompute", "recompute_modules")
"""Fields that a search chooses for each structure."""


def grouped(
    setting: Setting, plans: Plans, levers: bool
) -> Iterator[tuple[frozenset[str], Plan, np.ndarray]]:
    """Plans by their mechanisms: the mechanisms, one of the plans, and the indices of all.

    Args:
        setting: what the plans share.
        plans: the plans.
        levers: whether ``OF_LEVERS`` count.
    """
    names = [name for name in MECHANISMS if name in COLUMNS and (levers or name not in OF_LEVERS)]
    representatives = {}
    for fields in (JOINT, *((name,) for name in names if name not in JOINT)):
        _, first, places = np.unique(_keys(plans, fields), return_index=True, return_inverse=True)
        words = [[words_of(setting, plans.plan(int(row)), name) for name in fields] for row in first]
        rows = first[[words.index(words_of_set) for words_of_set in words]][places]
        representatives.update(dict.fromkeys(fields, rows))
    # Values with the same mechanism read as the first of them.
    columns = {name: getattr(plans, name)[rows] for name, rows in representatives.items()}
    # Such a mix of columns is a key only; the first plan of each key has its mechanisms and is valid.
    _, index = replace(plans, **columns).unique(*names, "policy")
    _, first = np.unique(index, return_index=True)
    left_out = () if levers else OF_LEVERS
    sets = [frozenset(mechanisms(setting, plan, left_out)) for plan in plans.take(first)]
    for words in dict.fromkeys(sets):
        rows = np.flatnonzero(np.array([words_of_set == words for words_of_set in sets])[index])
        yield words, plans.plan(int(rows[0])), rows


def _keys(plans: Plans, fields: tuple[str, ...]) -> np.ndarray:
    """A value for each plan, the same where one field, or two of whole numbers, are."""
    if len(fields) == 1:
        return getattr(plans, fields[0])
    first, second = (getattr(plans, name).astype(np.int64) for name in fields)
    return (first << 32) + second


def proven_rule(keeps: Keeps, levers: bool) -> CandidateRule:
    """The rule that structures use only mechanisms that measured runs had together."""

    def keep(candidates: Candidates) -> np.ndarray:
        mask = np.zeros(candidates.count, bool)
        for words, _, rows in grouped(candidates.space.setting, candidates.plans, levers):
            mask[rows] = keeps.together(words)
        return mask

    reads = (*SHAPE, *STATE, "policy", "recompute") if levers else (*SHAPE, *STATE, "policy")
    return CandidateRule(UNPROVEN, "one measured run must have used all mechanisms of a plan", reads, keep)


@dataclass
class ProvenChooser(Chooser):
    """Chooses the levers of structures among those that measured runs used with their mechanisms.

    Attributes:
        keeps: the measured runs.
        unproven: structures and kinds of recomputation that no choice of levers proves.
    """

    keeps: Keeps = field(kw_only=True)
    unproven: int = 0

    def timed(self, plans: Plans, bar: Bar) -> Iterator[Timed]:
        """As ``Chooser.timed``; plans of one block have the same mechanisms, levers apart."""
        for _, plan, rows in grouped(self.space.setting, plans, levers=False):
            space = self._left(plan)
            self.unproven += len(rows) * (len(self.space.recompute) - len(space.recompute))
            if not space.recompute:
                continue
            part = Chooser(space, self.usable_bytes)
            yield from part.timed(plans.take(rows), bar)
            self.fitting += part.fitting

    def _left(self, plan: Plan) -> LeverSpace:
        """The levers that measured runs used with the mechanisms of a structure."""
        keeps, setting = self.keeps, self.space.setting

        def together(levers: Combination, modules: Modules | None) -> bool:
            kind = "full" if modules is None else "selective" if modules else "none"
            values = {**levers.fields, "recompute": kind, "recompute_modules": modules or None}
            return keeps.together(frozenset(mechanisms(setting, plan.model_copy(update=values))))

        space = replace(self.space, together=together)
        if not len(space.combinations):
            return replace(space, recompute=())
        sets = tuple(modules for modules in space.modules if space.allowed(modules).any())
        left = {"none": True, "selective": bool(sets), "full": bool(space.allowed(None).any())}
        return replace(space, modules=sets, recompute=tuple(k for k in space.recompute if left[k]))
