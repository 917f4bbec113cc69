"""Layers of pipeline stages.

Stages with equal layers form a *class*: the first stage, each different middle stage, and the last. The stage
axis of a pipeline is the list of its *runs*: consecutive stages of one class, and how many. A model whose
layers are all of one kind has three runs, whatever the number of stages; an axis padded to the most stages
of any plan would slow its search down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np

from core.records import record
from simulator.models import LayerKind
from simulator.plan import Plans, taken
from simulator.schedules import Schedule, get_schedule
from simulator.setting import Setting

FIRST, LAST = 0, -1
"""Classes of the stages with the model's ends; all others lie between."""

LAYOUT_FIELDS = ("pipeline", "virtual_pipeline", "schedule", "first_stage_layers", "last_stage_layers")
"""The plan fields that the layout depends on."""


@record()
class Stages:
    """Layers of each class of stage, and the runs of a pipeline.

    ``layers`` has shape (classes, groups, plans), groups of equal layers as in ``groups``; ``mirrored`` are
    those of the stage at the same distance from the other end. ``index`` is the first stage of a class, -1
    where a plan has none, and ``count`` how many there are, shape (classes, plans). With one stage only the
    first class counts, and it holds both ends of the model.

    ``runs`` is the class of each run, in the order of the pipeline, and ``lengths`` its stages, shape (runs,
    plans); the first and the last run are the first and the last stage, and runs that a plan lacks have no
    stages. ``runs`` is None where every class is a run of its own. ``surplus`` is how many layers the model's
    first and last position hold beyond the other chunks of their stages, shape (2, groups, plans).
    """

    groups: tuple[LayerKind, ...]
    layers: np.ndarray
    mirrored: np.ndarray
    index: np.ndarray
    count: np.ndarray
    surplus: np.ndarray
    runs: np.ndarray | None
    lengths: np.ndarray

    @classmethod
    def of(cls, setting: Setting, plans: Plans) -> Stages:
        """Spread the layers as evenly as whole layers allow; the remainder goes to the middle stages.

        Layers of multi-token prediction follow the model's on the last stage.
        """
        setting = setting.of(plans)
        groups = tuple(setting.model.layer_groups)
        if len(groups) == 1:
            return cls._of_equal_layers(setting, plans)
        distinct, inverse = plans.unique(*LAYOUT_FIELDS)
        spreads = [Spread.once(setting, distinct, number) for number in range(len(distinct))]
        classes = max([3, *(len(spread.members) for spread in spreads)])
        longest = max([3, *(len(spread.runs) for spread in spreads)])
        layers, mirrored = np.zeros((2, classes, len(groups), len(distinct)))
        index, count = np.full((2, classes, len(distinct)), -1)
        runs, lengths = np.zeros((2, longest, len(distinct)), dtype=int)
        surplus = np.zeros((2, len(groups), len(distinct)))
        for number, spread in enumerate(spreads):
            rows = [*range(len(spread.members) - 1), LAST] if len(spread.stages) > 1 else [FIRST]
            stages = [ranks[0] for ranks in spread.members]
            layers[rows, :, number] = spread.stages[stages]
            mirrored[rows, :, number] = spread.stages[::-1][stages]
            index[rows, number], count[:, number] = stages, 0
            count[rows, number] = [len(ranks) for ranks in spread.members]
            surplus[..., number] = spread.surplus
            places = [*range(len(spread.runs) - 1), LAST] if len(spread.stages) > 1 else [FIRST]
            runs[places, number], lengths[places, number] = zip(*spread.runs, strict=True)
        return cls(
            groups,
            taken(layers, inverse),
            taken(mirrored, inverse),
            taken(index, inverse),
            taken(count, inverse),
            taken(surplus, inverse),
            taken(runs, inverse),
            taken(lengths, inverse),
        )

    @classmethod
    def _of_equal_layers(cls, setting: Setting, plans: Plans) -> Stages:
        """A model whose layers are all of one kind: first, middle and last stage.

        Middle stages of one chunk may differ by a layer: those that hold one more come first.
        """
        first, middle, last = _totals(setting, plans)
        p, between = plans.pipeline, np.maximum(plans.pipeline - 2, 0)
        surplus = np.stack([first - middle, last - middle])[:, np.newaxis]
        layers, mirrored = [first, middle, last], [last, middle, first]
        index, count = [0 * p, np.where(p > 2, 1, -1)], [1 + 0 * p, between]
        inside = setting.model.layers + setting.mtp_layers - first - last
        left = np.where((p > 2) & (plans.virtual_pipeline == 1), middle * between - inside, 0)
        if left.any():
            fewer = np.maximum(left, 0).astype(int)
            layers.insert(2, np.where(fewer > 0, middle - 1, 0.0))
            mirrored.insert(2, middle)
            index.append(np.where(fewer > 0, p - 1 - fewer, -1))
            count[1:] = [between - fewer, fewer]
        counts = np.stack([*count, 1 * (p > 1)])
        same, other = (np.stack(rows)[:, np.newaxis] for rows in (layers, mirrored))
        index.append(np.where(p > 1, p - 1, -1))
        groups = tuple(setting.model.layer_groups)
        return cls(groups, same, other, np.stack(index), counts, surplus, None, counts)

    @property
    def present(self) -> np.ndarray:
        """Which classes a plan has, shape (classes, plans)."""
        return self.index >= 0

    @cached_property
    def total(self) -> np.ndarray:
        """Layers of one stage of each class, shape (classes, plans)."""
        return self.layers.sum(axis=1)

    def take(self, rows: np.ndarray) -> Stages:
        """The layers of some of the plans."""
        return Stages(
            self.groups,
            taken(self.layers, rows),
            taken(self.mirrored, rows),
            taken(self.index, rows),
            taken(self.count, rows),
            taken(self.surplus, rows),
            None if self.runs is None else taken(self.runs, rows),
            taken(self.lengths, rows),
        )

    def name(self, row: int) -> str:
        """Name of a class: first, middle or last; different middle classes are numbered."""
        if row in (FIRST, len(self.index) - 1):
            return "last" if row else "first"
        return "middle" if len(self.index) == 3 else f"middle {row}"

    def by_run(self, values: np.ndarray) -> np.ndarray:
        """Values of classes, shape (classes, plans), as those of runs, shape (runs, plans)."""
        return values if self.runs is None else np.take_along_axis(values, self.runs, axis=0)


@record()
class Spread:
    """The layers of one plan by position of the model and by stage.

    ``lengths`` are the layers of each position in order, ``group_of`` the group of each layer. ``stages`` has
    shape (stages, groups), ``surplus`` as in ``Stages``. ``classes`` is the class of each stage, LAST for the
    last.
    """

    lengths: tuple[float, ...]
    group_of: np.ndarray
    stages: np.ndarray
    surplus: np.ndarray
    classes: tuple[int, ...]

    @classmethod
    def once(cls, setting: Setting, plans: Plans, index: int) -> Spread:
        """The layout of the plan at ``index``, which plans of one setting share."""
        fields = (getattr(plans, name)[index] for name in LAYOUT_FIELDS if name != "schedule")
        key = plans.schedule_names[int(plans.schedule[index])], *map(int, fields)
        if key not in setting.layouts:
            setting.layouts[key] = cls.of(setting, plans, index)
        return setting.layouts[key]

    @classmethod
    def of(cls, setting: Setting, plans: Plans, index: int = 0) -> Spread:
        """The layout of the plan at ``index``."""
        plan = plans.take(np.array([index])) if len(plans) > 1 else plans
        p, v = int(plan.pipeline[0]), int(plan.virtual_pipeline[0])
        schedule = get_schedule(plan.schedule_names[int(plan.schedule[0])])
        ranks = np.array([rank for rank, _ in schedule.routes(p, v)[0]])
        first, middle, last = (float(total[0]) for total in _totals(setting, plan))
        layers = setting.model.layers + setting.mtp_layers
        lengths = layers_by_position(layers, (first, middle, last), p, len(ranks))
        group_of = _group_of_layers(setting, int(np.ceil(sum(lengths) - 1e-9)))
        groups = np.arange(len(setting.model.layer_groups))
        chunks = _shares(lengths, len(group_of)) @ (group_of[:, np.newaxis] == groups)
        stages = np.zeros((p, len(groups)))
        np.add.at(stages, ranks, chunks)
        stages = np.round(stages, 12)  # equal stages are equal after rounding
        others = np.array([(stages[ranks[end]] - chunks[end]) / max(v - 1, 1) for end in (0, -1)])
        twice = schedule.copies > 1 and len(groups) > 1
        both = np.concatenate((stages, stages[::-1]), axis=1) if twice else stages
        return cls(tuple(lengths), group_of, stages, chunks[[0, -1]] - others, _classes(both.tolist()))

    @property
    def positions(self) -> list[tuple[tuple[int, float], ...]]:
        """The layers of each position in order, as (group, share of the layer)."""
        if len(self.stages[0]) == 1:
            return [_equal_layers(length) for length in self.lengths]
        return [
            tuple((int(self.group_of[layer]), float(row[layer])) for layer in np.flatnonzero(row > 1e-9))
            for row in _shares(self.lengths, len(self.group_of))
        ]

    @cached_property
    def members(self) -> list[list[int]]:
        """The stages of each class: of the first, of the middle ones, of the last."""
        members: dict[int, list[int]] = {}
        for stage, row in enumerate(self.classes):
            members.setdefault(row, []).append(stage)
        return list(members.values())

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Class and length of each run of equal stages, in the order of the pipeline."""
        return [(row, len(list(stages))) for row, stages in groupby(self.classes)]


def _classes(stages: list[list[float]]) -> tuple[int, ...]:
    """The class of each stage, from what it holds; classes of middle stages in the order of their first."""
    middle = [tuple(layers) for layers in stages[1:-1]]
    rows = {layers: row for row, layers in enumerate(dict.fromkeys(middle), 1)}
    last = (LAST,) if len(stages) > 1 else ()
    return (FIRST, *(rows[layers] for layers in middle), *last)


def _totals(setting: Setting, plans: Plans) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Layers of the first stage, of the fullest between and of the last; arrays of shape (plans,)."""
    layers, p = setting.model.layers, plans.pipeline
    even = np.floor(layers / p)
    first = np.where(plans.first_stage_layers == 0, even, np.maximum(plans.first_stage_layers, 0))
    last = np.where(plans.last_stage_layers == 0, even, np.maximum(plans.last_stage_layers, 0))
    between = np.maximum(p - 2, 1)
    stated = (plans.first_stage_layers != 0) | (plans.last_stage_layers != 0)
    # Two stages have none between: a full chunk is one share of all layers, in whole layers.
    padded = np.ceil(layers / (2 * plans.virtual_pipeline)) * plans.virtual_pipeline
    of_two = np.where(stated & (plans.virtual_pipeline > 1), padded, layers / 2)
    middle = np.where(p > 2, np.ceil((layers - first - last) / between), np.where(p == 2, of_two, 0))
    first = np.where((p == 2) & ~stated, layers - last, first)
    if setting.framework.stages_by_cost:
        by_cost = ~stated & (p > 1)
        ends = np.array([_ends_by_cost(setting, int(stages)) for stages in np.ravel(p)], dtype=float).T
        first, last = (np.where(by_cost, end, even) for end, even in zip(ends, (first, last), strict=True))
        middle = np.where(by_cost & (p > 2), np.ceil((layers - first - last) / between), middle)
    if setting.mtp_layers:
        first, middle, last = _behind(setting, plans, stated, (first, middle, last))
    return (
        np.where(p == 1, layers + setting.mtp_layers, first).astype(float),
        middle.astype(float),
        np.where(p == 1, 0, last).astype(float),
    )


def _ends_by_cost(setting: Setting, pipeline: int) -> tuple[int, int]:
    """Layers of the first and of the last stage, where stages are cut at equal shares of the weights.

    A stage ends with the layer that exceeds its share. Weights are four hidden-square matrices of attention,
    the MLP, and the output layer behind the last layer (nanotron, models/base.py: build_model;
    models/llama.py: get_block_compute_costs).
    """
    model = setting.model
    layer = 4 * model.hidden**2 + (3 if model.gated else 2) * model.hidden * model.feed_forward
    costs = [*[layer] * model.layers, model.vocabulary * model.hidden]
    counts, total, done = [0] * pipeline, sum(costs), 0
    stage = 0
    for number, cost in enumerate(costs):
        counts[stage] += number < model.layers
        done += cost
        if done * pipeline > total * (stage + 1):
            stage += 1
    return counts[0], counts[-1]


def _behind(
    setting: Setting, plans: Plans, stated: np.ndarray, even: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Layers of first, middle and last stage with multi-token prediction on the last.

    All chunks hold the same number of layers, rounded up; the surplus is taken from the last chunk, then from
    the first (layouts of the DeepSeek-V3 recipes, Megatron Bridge).
    """
    layers, p, v = setting.model.layers, plans.pipeline, plans.virtual_pipeline
    chunk = np.ceil(layers / (p * v))
    spare = chunk * p * v - layers
    fits = ~stated & (p > 1) & (spare <= 2 * chunk)
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
    per_position = middle * pipeline / positions
    ends = per_position + first - middle, per_position + last - middle
    if min(ends) < 0:
        return [total / positions] * positions
    return [ends[0], *[per_position] * (positions - 2), ends[1]]


def _group_of_layers(setting: Setting, layers: int) -> np.ndarray:
    """The group of each layer, shape (layers,); those after the model's own are of the last one's kind, or of
    those that the block of further predictions names."""
    model = setting.model
    group_of = np.empty(max(layers, model.layers), dtype=int)
    for number, group in enumerate(model.layer_groups.values()):
        group_of[list(group)] = number
    block = np.array(model.mtp_block or (model.layers - 1,))
    group_of[model.layers :] = np.resize(group_of[block], len(group_of) - model.layers)
    return group_of


def _shares(lengths: Sequence[float], layers: int) -> np.ndarray:
    """Share of each layer that lies on each position, shape (positions, layers)."""
    ends = np.cumsum(lengths)[:, np.newaxis]
    starts, layer = ends - np.asarray(lengths)[:, np.newaxis], np.arange(layers)
    return np.maximum(np.minimum(ends, layer + 1) - np.maximum(starts, layer), 0.0)


def _equal_layers(length: float) -> tuple[tuple[int, float], ...]:
    """Layers of one kind, as (group, share): whole layers come first, wherever the position begins."""
    full, part = divmod(length + 1e-9, 1.0)
    return ((0, 1.0),) * int(full) + (((0, part - 1e-9),) if part > 2e-9 else ())


def by_schedule(plans: Plans, value: Callable[[Schedule], float]) -> np.ndarray:
    """``value`` of each plan's schedule, shape (plans,)."""
    values = np.array([value(get_schedule(name)) for name in plans.schedule_names])
    if len(set(values.tolist())) == 1:
        return np.full(len(plans), values[0])
    return values[plans.schedule]


def gathered_together(plans: Plans, micro_batches: np.ndarray) -> np.ndarray:
    """Micro batches that share one gather of sharded parameters, shape (plans,)."""
    together = np.ones(len(plans))
    for name, rows in plans.by_schedule:
        together[rows] = get_schedule(name).gathered_together(plans.pipeline[rows], micro_batches[rows])
    return together


def first_largest(values: np.ndarray) -> np.ndarray:
    """``np.argmax(values, axis=0)`` of few rows, shape (plans,); row by row it takes a third of the time."""
    index, largest = np.zeros(values.shape[1], dtype=np.int64), values[0]
    for row in range(1, len(values)):
        np.copyto(index, row, where=values[row] > largest)
        largest = np.maximum(largest, values[row])
    return index


def of_class(stage_class: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values of one class of stage for each plan, shape (plans,), from those of all.

    ``take`` is three times as fast as two index arrays.
    """
    return np.take(values, stage_class * len(stage_class) + np.arange(len(stage_class)))
