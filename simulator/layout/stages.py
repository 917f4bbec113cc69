"""Layers of pipeline stages.

Stages with equal layers form a *class*: the first stage, each different middle stage, and the last. A model
whose layers are all of one kind has three classes, whatever the number of stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.models import LayerKind
from simulator.plan import Plans
from simulator.schedules import Schedule, get_schedule
from simulator.setting import Setting

FIRST, LAST = 0, -1
"""Classes of the stages with the model's ends; all others lie between."""

LAYOUT_FIELDS = ("pipeline", "virtual_pipeline", "schedule", "first_stage_layers", "last_stage_layers")
"""The plan fields that the layout depends on."""


@dataclass
class Stages:
    """Layers of each class of stage.

    ``layers`` has shape (classes, groups, plans), groups of equal layers as in ``groups``; ``mirrored`` are
    those of the stage at the same distance from the other end. ``index`` is the first stage of a class, -1
    where a plan has none, and ``count`` how many there are, shape (classes, plans). With one stage only the
    first class counts, and it holds both ends of the model. With two, the class between stands for an
    average stage without an end.
    """

    groups: tuple[LayerKind, ...]
    layers: np.ndarray
    mirrored: np.ndarray
    index: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, setting: Setting, plans: Plans) -> Stages:
        """Spread the layers as evenly as whole layers allow; the remainder goes to the middle stages.

        Layers of multi-token prediction follow the model's on the last stage.
        """
        totals = _totals(setting, plans)
        groups = tuple(setting.model.layer_groups)
        p = plans.pipeline
        if len(groups) == 1:
            layers = np.stack(totals)[:, np.newaxis]
            index = np.stack([0 * p, np.where(p > 2, 1, -1), np.where(p > 1, p - 1, -1)])
            count = np.stack([1 + 0 * p, np.maximum(p - 2, 0), 1 * (p > 1)])
            return cls(groups, layers, layers[::-1], index, count)
        distinct, inverse = plans.unique(*LAYOUT_FIELDS)
        found = [Spread.of(setting, distinct, each) for each in range(len(distinct))]
        classes = max([3, *(len(spread.classes) for spread in found)])
        layers, mirrored = np.zeros((2, classes, len(groups), len(distinct)))
        index, count = np.full((2, classes, len(distinct)), -1)
        for number, spread in enumerate(found):
            layers[..., number], mirrored[..., number] = spread.padded(classes)
            index[:, number], count[:, number] = spread.places(classes)
        return cls(groups, layers[..., inverse], mirrored[..., inverse], index[:, inverse], count[:, inverse])

    @property
    def present(self) -> np.ndarray:
        """Which classes a plan has, shape (classes, plans)."""
        return self.index >= 0

    @cached_property
    def total(self) -> np.ndarray:
        """Layers of one stage of each class, shape (classes, plans)."""
        return self.layers.sum(axis=1)

    @property
    def first(self) -> np.ndarray:
        """Layers of the first stage, shape (plans,)."""
        return self.total[FIRST]

    @property
    def middle(self) -> np.ndarray:
        """Layers of the fullest stage between the ends, shape (plans,)."""
        return self.total[1:LAST].max(axis=0)

    @property
    def last(self) -> np.ndarray:
        """Layers of the last stage, shape (plans,)."""
        return self.total[LAST]

    def name(self, row: int) -> str:
        """Name of a class: first, middle or last; different middle classes are numbered."""
        if row in (FIRST, len(self.index) - 1):
            return "last" if row else "first"
        return "middle" if len(self.index) == 3 else f"middle {row}"


@dataclass(frozen=True)
class Spread:
    """The layers of one plan by position of the model and by stage.

    ``lengths`` are the layers of each position in order, ``group_of`` the group of each layer. ``stages`` has
    shape (stages, groups); ``classes`` lists one stage of each class: the first, the different middle stages,
    the last.
    """

    lengths: tuple[float, ...]
    group_of: np.ndarray
    stages: np.ndarray
    classes: tuple[int, ...]

    @classmethod
    def of(cls, setting: Setting, plans: Plans, index: int = 0) -> Spread:
        """The layout of the plan at ``index``."""
        plan = plans.take(np.array([index]))
        p, v = int(plan.pipeline[0]), int(plan.virtual_pipeline[0])
        schedule = get_schedule(plan.schedule_names[int(plan.schedule[0])])
        route = schedule.routes(p, v)[0]
        first, middle, last = (float(total[0]) for total in _totals(setting, plan))
        counts = layers_by_position(
            setting.model.layers + setting.mtp_layers, (first, middle, last), p, len(route)
        )
        group_of = _group_of_layers(setting, int(np.ceil(sum(counts) - 1e-9)))
        groups = np.arange(len(setting.model.layer_groups))
        held = _shares(counts, len(group_of)) @ (group_of[:, np.newaxis] == groups)
        stages = np.zeros((p, len(groups)))
        np.add.at(stages, [rank for rank, _ in route], held)
        stages = np.round(stages, 12)  # equal stages are equal after rounding
        held = np.concatenate((stages, stages[::-1]), axis=1) if schedule.copies > 1 else stages
        kept: list[int] = []
        for rank in range(1, p - 1):
            if not any(np.all(held[rank] <= held[other]) for other in kept):
                kept.append(rank)
        return cls(tuple(counts), group_of, stages, (0, *kept, p - 1))

    @property
    def positions(self) -> list[tuple[tuple[int, float], ...]]:
        """The layers of each position in order, as (group, share of the layer)."""
        if len(self.stages[0]) == 1:
            return [_equal_layers(length) for length in self.lengths]
        return [
            tuple((int(self.group_of[layer]), float(row[layer])) for layer in np.flatnonzero(row > 1e-9))
            for row in _shares(self.lengths, len(self.group_of))
        ]

    def padded(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Layers and mirrored layers, padded to ``classes`` classes, shape (classes, groups)."""
        p, groups = self.stages.shape
        layers, mirrored = np.zeros((2, classes, groups))
        layers[FIRST], mirrored[FIRST] = self.stages[0], self.stages[-1]
        if p > 1:
            layers[LAST], mirrored[LAST] = self.stages[-1], self.stages[0]
        if p == 2:
            layers[1] = mirrored[1] = self.stages.sum(axis=0) / p
        for row, rank in enumerate(self.classes[1:-1], 1):
            layers[row], mirrored[row] = self.stages[rank], self.stages[p - 1 - rank]
        return layers, mirrored

    def places(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """The first stage of each class (-1 for none) and its number of stages, padded to ``classes``."""
        index, count = np.full(classes, -1), np.zeros(classes, dtype=int)
        rows = [self.class_of(rank) for rank in range(len(self.stages))]
        for rank, row in reversed(list(enumerate(rows))):
            index[row], count[row] = rank, count[row] + 1
        return index, count

    def class_of(self, rank: int) -> int:
        """The class that stands for a stage."""
        if rank in (0, len(self.stages) - 1):
            return FIRST if rank == 0 else LAST
        between = self.classes[1:-1]
        holds = [bool(np.all(self.stages[rank] <= self.stages[other])) for other in between]
        return 1 + holds.index(True)


def _totals(setting: Setting, plans: Plans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Layers of the first stage, of the fullest between and of the last; arrays of shape (plans,)."""
    layers, p = setting.model.layers, plans.pipeline
    even = np.floor(layers / p)
    first = np.where(plans.first_stage_layers == 0, even, np.maximum(plans.first_stage_layers, 0))
    last = np.where(plans.last_stage_layers == 0, even, np.maximum(plans.last_stage_layers, 0))
    between = np.maximum(p - 2, 1)
    middle = np.where(p > 2, np.ceil((layers - first - last) / between), np.where(p == 2, layers / 2, 0))
    given = (plans.first_stage_layers != 0) | (plans.last_stage_layers != 0)
    first = np.where((p == 2) & ~given, layers - last, first)
    if setting.mtp_layers:
        first, middle, last = _behind(setting, plans, given, (first, middle, last))
    return (
        np.where(p == 1, layers + setting.mtp_layers, first).astype(float),
        middle.astype(float),
        np.where(p == 1, 0, last).astype(float),
    )


def _behind(
    setting: Setting, plans: Plans, given: np.ndarray, even: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Layers of first, middle and last stage with multi-token prediction on the last.

    All chunks hold the same number of layers, rounded up; the surplus is taken from the last chunk, then from
    the first (layouts of the DeepSeek-V3 recipes, Megatron Bridge).
    """
    layers, p, v = setting.model.layers, plans.pipeline, plans.virtual_pipeline
    chunk = np.ceil(layers / (p * v))
    spare = chunk * p * v - layers
    fits = ~given & (p > 1) & (spare <= 2 * chunk)
    lacks = np.minimum(spare, chunk)
    balanced = chunk * v - (spare - lacks), chunk * v, chunk * v - lacks
    first, middle, last = (np.where(fits, new, old) for new, old in zip(balanced, even, strict=True))
    return first, np.where(p == 2, even[1], np.where(p > 2, middle, 0)), last + setting.mtp_layers


def layers_by_position(
    total: int, stages: tuple[float, float, float], pipeline: int, positions: int
) -> list[float]:
    """Layers of each position of the model.

    With one chunk a rank, the middle stages share the remaining layers, in whole layers. With several chunks,
    a position has an equal part of a middle stage, and the outermost positions hold the difference of the
    ends.

    Args:
        total: layers of the model.
        stages: layers of the first stage, of the fullest between, and of the last.
        pipeline: stages.
        positions: of the model, one or more a stage.
    """
    first, middle, last = stages
    if pipeline == 1:
        return [total / positions] * positions
    if positions == pipeline:
        least, more = divmod(int(total - first - last), max(pipeline - 2, 1))
        inner = [float(least + (stage < more)) for stage in range(pipeline - 2)]
        return [first, *inner, last]
    each = middle * pipeline / positions
    ends = each + first - middle, each + last - middle
    if min(ends) < 0:
        return [total / positions] * positions
    return [ends[0], *[each] * (positions - 2), ends[1]]


def _group_of_layers(setting: Setting, layers: int) -> np.ndarray:
    """The group of each layer, shape (layers,); those after the model's own are of the last one's kind."""
    model = setting.model
    found = np.empty(max(layers, model.layers), dtype=int)
    for number, group in enumerate(model.layer_groups.values()):
        found[list(group)] = number
    found[model.layers :] = found[model.layers - 1]
    return found


def _shares(lengths: Sequence[float], layers: int) -> np.ndarray:
    """Share of each layer that lies on each position, shape (positions, layers)."""
    ends = np.cumsum(lengths)[:, np.newaxis]
    starts, layer = ends - np.asarray(lengths)[:, np.newaxis], np.arange(layers)
    return np.maximum(np.minimum(ends, layer + 1) - np.maximum(starts, layer), 0.0)


def _equal_layers(length: float) -> tuple[tuple[int, float], ...]:
    """Layers of one kind, as (group, share): whole layers come first, wherever the position begins."""
    whole, part = divmod(length + 1e-9, 1.0)
    return ((0, 1.0),) * int(whole) + (((0, part - 1e-9),) if part > 2e-9 else ())


def by_schedule(plans: Plans, value: Callable[[Schedule], float]) -> np.ndarray:
    """``value`` of each plan's schedule, shape (plans,)."""
    return np.array([value(get_schedule(name)) for name in plans.schedule_names])[plans.schedule]


def gathered_together(plans: Plans, micro_batches: np.ndarray) -> np.ndarray:
    """Micro batches that share one gather of sharded parameters, shape (plans,)."""
    together = np.ones(len(plans))
    for name, chosen in plans.by_schedule:
        together[chosen] = get_schedule(name).gathered_together(plans.pipeline[chosen], micro_batches[chosen])
    return together
