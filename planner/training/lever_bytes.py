"""Bytes that layers keep and that sets of recomputed modules discard, once for each distinct shape.

No lever of a combination changes them, so that structures are known to fit before any layer is priced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from core.records import record
from planner.training.lever_space import LeverSpace, Modules
from simulator.layout.model_ops import LAYER_FIELDS, layer_lists
from simulator.levers import BY_PLAN
from simulator.ops import Op
from simulator.plan import FULL, Plans
from simulator.training.lever_memory import captured
from simulator.training.modules import frees

SHAPE_FIELDS = tuple(name for name in LAYER_FIELDS if name not in (*BY_PLAN, "recompute", "overlap_expert"))
"""Plan fields that the ops of a layer depend on, levers apart."""

Matches = Callable[[Op, Modules, bool], bool]


@record()
class LayerBytes:
    """Bytes of one layer of each kind, for the distinct shapes to which ``index`` maps every plan.

    Attributes:
        index: shape (plans,).
        saved: bytes that a layer saves for its backward pass, shape (kinds, shapes).
        discarded: bytes of them that recomputing each set of modules discards, shape (sets, kinds, shapes).
        captured: bytes that graphs of parts replay, shape (kinds, shapes), by the name of the graphs.
    """

    index: np.ndarray
    saved: np.ndarray
    discarded: np.ndarray
    captured: dict[str, np.ndarray]

    @classmethod
    def of(cls, space: LeverSpace, plans: Plans) -> LayerBytes:
        """Add up the bytes of the layers of plans; levers of ``plans`` are not read."""
        setting = space.setting.of(plans).over_layers
        shapes, index = distinct_shapes(plans)
        groups, sets = setting.model.layer_groups, space.modules
        first = setting.with_choices(**dict(space.combinations[0].ops))
        lists = list(zip(groups, layer_lists(first, shapes, list(groups)), strict=True))
        none = np.zeros(len(shapes))
        saved = np.array([sum((op.saved for op in ops), none) for _, ops in lists])
        core = np.array(["core_attn" in modules for modules in sets])[:, np.newaxis]
        discarded = np.zeros((len(sets), *saved.shape))
        for number, (kind, ops) in enumerate(lists):
            for op in ops:
                gone = in_sets(frees, sets, op.module, op.part, kind.experts)[:, np.newaxis]
                discarded[:, number] += core * op.intermediate + gone * op.saved
        graphs = {
            use.graphs: np.array([none + captured(use.graphs, kind, ops) for kind, ops in lists])
            for use in space.memory_uses
        }
        return cls(index, saved, discarded, graphs)

    def take(self, rows: np.ndarray) -> LayerBytes:
        """The bytes of some of the plans."""
        return replace(self, index=self.index[rows])

    @property
    def of_plans(self) -> np.ndarray:
        """Bytes that a layer of every plan keeps, shape (kinds, plans)."""
        return self.saved[:, self.index]

    @property
    def captured_of_plans(self) -> dict[str, np.ndarray]:
        """Bytes that graphs of parts replay of every plan, shape (kinds, plans), by the graphs."""
        return {graphs: sizes[:, self.index] for graphs, sizes in self.captured.items()}


def distinct_shapes(plans: Plans) -> tuple[Plans, np.ndarray]:
    """The distinct shapes of layers of plans, and every plan's."""
    shapes, index = plans.unique(*SHAPE_FIELDS)
    # Whole layers are recomputed in all: times of the passes themselves do not depend on it.
    return replace(shapes, recompute=np.full(len(shapes), FULL)), index


@cache
def in_sets(matches: Matches, sets: tuple[Modules, ...], module: str, part: str, experts: bool) -> np.ndarray:
    """Which sets of modules repeat or free an op of a module and a part of a layer, shape (sets,)."""
    op = Op(name=module, kind="", part=part, module=module)
    return np.array([matches(op, modules, experts) for modules in sets])
