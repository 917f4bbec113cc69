"""The ops of a model on one rank: time, memory and parameters are read off the same lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from core.records import record
from hwmodels.collectives.cost import Cost, Links
from simulator import ops
from simulator.layout.tower import step_tower
from simulator.levers import BY_PLAN
from simulator.models import LayerKind
from simulator.ops import Batch, Op, Rank
from simulator.ops.adapters import with_adapters
from simulator.ops.ends import further_prediction
from simulator.plan import FULL_OVERLAP, Plans
from simulator.setting import Setting

MOST_LAYOUTS = 256
"""Layouts and ops of lone plans that a setting keeps before it lists more ops."""
SOURCE = "source"
"""Kind of attention of the layers of an encoder."""
LAYER_FIELDS = (
    "tensor",
    "context",
    "expert",
    "expert_tensor",
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "context_algorithm",
    "context_heads",
    "overlap_tensor",
    "overlap_expert",
    *BY_PLAN,
)
"""The plan fields that the cost of a layer, of an embedding and of an output layer depends on."""


@record()
class LeverOps:
    """Forward ops of one micro batch under one choice of levers, of shape (plans,).

    ``rows`` are the places of ``plans`` among the distinct plans. ``layers`` holds the ops of one layer of
    each group of equal layers; ``further`` is the projection before each further prediction (multi-token
    prediction), if any.
    """

    setting: Setting
    plans: Plans
    rows: np.ndarray
    embedding: list[Op]
    head: list[Op]
    further: list[Op]
    layers: list[list[Op]]

    @classmethod
    def of(cls, setting: Setting, plans: Plans, rows: np.ndarray, groups: Sequence[LayerKind]) -> LeverOps:
        """List the ops of a model with these groups of equal layers."""
        rank = step_rank(setting, plans)
        further = further_prediction(rank) if setting.predictions else []
        layers = layer_lists(setting, plans, groups)
        embedding = [*ops.embedding(rank), *step_tower(setting, plans)]
        return cls(setting, plans, rows, embedding, ops.head(rank), further, layers)


@record()
class ModelOps:
    """Forward ops of one micro batch of distinct plans, by their levers.

    ``plans`` are the distinct plans by ``LAYER_FIELDS``, ``index`` maps every plan to its distinct one, shape
    (plans,). ``components`` are what is computed of the ops once.
    """

    plans: Plans
    index: np.ndarray
    by_levers: list[LeverOps]
    components: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, setting: Setting, plans: Plans, groups: Iterable[LayerKind]) -> ModelOps:
        """List the ops of a model with these groups of layers; the setting keeps those of lone plans."""
        # Where the exchange overlaps, the share of passes without a partner counts too.
        fields = (plans.pipeline, plans.virtual_pipeline, plans.data) if plans.overlap_expert.any() else ()
        apart = [np.where(plans.overlap_expert, values, 0) for values in fields]
        if setting.training.drawn is not None:
            # The slowest of more replicas holds longer documents; a lone stage has the output layer too.
            apart += [plans.data, plans.pipeline]
        if len(plans) != 1:
            return cls._of(setting, *plans.unique(*LAYER_FIELDS, values=apart), groups)
        columns = *(getattr(plans, name) for name in LAYER_FIELDS), *apart
        schedule = plans.schedule_names[plans.schedule[0]] if fields else ""
        key = tuple(groups), schedule, *(column.item() for column in columns)
        if key not in setting.layouts:
            if len(setting.layouts) >= MOST_LAYOUTS:
                setting.layouts.clear()
            setting.layouts[key] = cls._of(setting, plans, np.zeros(1, dtype=np.int64), groups)
        return setting.layouts[key]

    @classmethod
    def _of(
        cls, setting: Setting, distinct: Plans, index: np.ndarray, groups: Iterable[LayerKind]
    ) -> ModelOps:
        kinds, split = list(groups), setting.by_levers(distinct)
        single = len(split) == 1
        parts = [
            LeverOps.of(part, distinct if single else distinct.take(rows), rows, kinds)
            for part, rows in split
        ]
        return cls(distinct, index, parts)

    def gathered(self, values: Sequence[np.ndarray | float]) -> np.ndarray:
        """Values of the plans of each choice of levers, as those of all distinct plans, shape (distinct,)."""
        if len(values) == 1:
            return np.asarray(values[0], float) + np.zeros(len(self.plans))
        merged = np.zeros(len(self.plans))
        for part, value in zip(self.by_levers, values, strict=True):
            merged[part.rows] = value
        return merged

    def gathered_costs(self, costs: Sequence[Cost]) -> Cost:
        """Costs of the plans of each choice of levers, as those of all distinct plans."""
        if len(costs) == 1:
            return costs[0]

        def links() -> Links:
            traffic = [cost.links() for cost in costs]
            levels = max(len(load.busy) for load in traffic)
            busy, bytes_ = np.zeros((2, levels, len(self.plans)))
            for part, load in zip(self.by_levers, traffic, strict=True):
                busy[: len(load.busy), part.rows], bytes_[: len(load.bytes), part.rows] = load
            return Links(busy, bytes_)

        return Cost(self.gathered([cost.seconds for cost in costs]), links)


def layer_lists(setting: Setting, plans: Plans, groups: Iterable[LayerKind]) -> list[list[Op]]:
    """Forward ops of one layer of each kind, with those of adapters where the workload has them."""
    rank, kinds = step_rank(setting, plans), list(groups)
    layers = ops.layers(rank, kinds)
    if any(kind.mixer == SOURCE for kind in kinds):
        sequences, length = setting.sequences(plans)[0], setting.training.source
        encoded = ops.layers(replace(rank, batch=Batch.training(sequences, length, causal=False)), kinds)
        pairs = zip(kinds, layers, encoded, strict=True)
        layers = [source if kind.mixer == SOURCE else other for kind, other, source in pairs]
    adapter = setting.training.adapter
    return with_adapters(layers, adapter, rank.formats) if adapter else layers


def step_rank(setting: Setting, plans: Plans) -> Rank:
    """One rank's view of a micro batch, with the formats that sliced products reduce in."""
    rank = setting.rank(plans)
    # User buffers reduce the outputs of fp8 products in 8 bits too (NeMo, tp_overlap_configs/userbuffers.py:
    # fp8_buf).
    partial = np.where(slices_products(setting, plans), setting.operand_width, setting.width)
    return replace(rank, formats=replace(rank.formats, partial_width=partial))


def slices_products(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether a plan cuts products into slices beside their communication, shape (plans,).

    Transformer Engine's user buffers do; they reach one NVLink domain, and have no form for NVFP4 (Megatron
    Bridge's recipes turn tp_comm_overlap off in that format: perf_recipes/llama).
    """
    if setting.linear_dtype == "nvfp4":
        return np.zeros(len(plans), dtype=bool)
    within = plans.tensor <= setting.cluster.domain
    return (plans.overlap_tensor == FULL_OVERLAP) & plans.sequence_parallel.astype(bool) & within
