"""Parameters on one device of each class of stage, read off the lists of ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from core.records import record
from simulator.layout.model_ops import ModelOps
from simulator.layout.stages import FIRST, LAST, Stages, by_schedule
from simulator.layout.tower import is_tower
from simulator.ops import Op
from simulator.plan import Plans, taken
from simulator.setting import Setting


@record()
class Parameters:
    """Parameters of one device of each class of stage; arrays of shape (classes, plans).

    ``dense`` are sharded over tensor-parallel ranks and replicated over data- and context-parallel ones, and
    ``ends`` are those of them that no layer has; ``experts`` are sharded over expert-parallel ranks too.
    ``largest_layer`` has shape (plans,). ``ops`` are the ops that they were counted from.
    """

    dense: np.ndarray
    ends: np.ndarray
    experts: np.ndarray
    largest_layer: np.ndarray
    ops: ModelOps

    def take(self, rows: np.ndarray) -> Parameters:
        """The parameters of some of the plans."""
        ops = replace(self.ops, index=self.ops.index[rows])
        dense, ends, experts = (taken(part, rows) for part in (self.dense, self.ends, self.experts))
        return Parameters(dense, ends, experts, self.largest_layer[rows], ops)

    @property
    def total(self) -> np.ndarray:
        """All parameters of one device, shape (classes, plans)."""
        return self.dense + self.experts


def parameters(setting: Setting, plans: Plans, stages: Stages) -> Parameters:
    """Count the parameters that one device of each class holds before data-parallel sharding."""
    setting = setting.of(plans)
    ops = ModelOps.of(setting, plans, stages.groups)
    dense, experts = (
        np.stack([_count(ops, number, routed) for number in range(len(stages.groups))])
        for routed in (False, True)
    )
    second = by_schedule(plans, lambda schedule: schedule.copies - 1)
    layers = stages.layers + second * stages.mirrored
    ends = _ends(setting, plans, stages, ops)
    return Parameters(
        dense=(layers * dense).sum(axis=1) + ends,
        ends=ends,
        experts=(layers * experts).sum(axis=1),
        largest_layer=(dense + experts).max(axis=0),
        ops=ops,
    )


def _count(ops: ModelOps, group: int, routed: bool) -> np.ndarray:
    """Parameters of routed experts of one layer of a group, or all others, shape (plans,)."""

    def total(layer: Iterable[Op]) -> np.ndarray | float:
        return sum(op.parameters for op in layer if (op.part == "routed") is routed)

    return ops.gathered([total(part.layers[group]) for part in ops.by_levers])[ops.index]


def head_share(plans: Plans, classes: int) -> np.ndarray:
    """Part of an output layer that each class of stage holds, shape (classes, plans).

    It lies on the last stage; on the first where routes return to it (or with one stage); on both with
    bidirectional pipelines. Vocabulary parallelism spreads it evenly.
    """
    spread = by_schedule(plans, lambda schedule: schedule.output_barriers > 0)
    both = by_schedule(plans, lambda schedule: schedule.copies > 1)
    back = by_schedule(plans, lambda schedule: schedule.returns) | (plans.pipeline == 1)
    share = np.tile(spread / plans.pipeline, (classes, 1))
    share[FIRST] = np.where(spread, share[FIRST], both | back)
    share[LAST] = np.where(spread, share[LAST], both | ~back)
    return share


def _ends(setting: Setting, plans: Plans, stages: Stages, ops: ModelOps) -> np.ndarray:
    """Parameters of the input embedding and of the output layer, shape (classes, plans)."""
    lists = [[*part.embedding, *part.head] for part in ops.by_levers]
    table, norm, embedding = (
        ops.gathered([next(op.parameters for op in listed if op.name == name) for listed in lists])[ops.index]
        for name in ("output_layer", "final_norm", "embedding")
    )
    positions = embedding - table
    spread = by_schedule(plans, lambda schedule: schedule.output_barriers > 0)
    both = by_schedule(plans, lambda schedule: schedule.copies > 1)
    back = by_schedule(plans, lambda schedule: schedule.returns) | (plans.pipeline == 1)
    # On one rank, tied tables are a single table.
    output = np.where(back & setting.model.tied_embeddings, 0.0, table)
    share = head_share(plans, len(stages.index))
    embedded = np.zeros(share.shape)
    embedded[FIRST], embedded[LAST] = 1.0, both
    tables = np.where(spread, table / plans.pipeline, embedded * table)
    ends = tables + embedded * positions + share * output + (share > 0) * norm
    if setting.training.tower == "trained":
        towers = [sum(op.parameters for op in part.embedding if is_tower(op)) for part in ops.by_levers]
        ends = ends + embedded * ops.gathered(towers)[ops.index]
    return ends
