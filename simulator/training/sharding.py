"""Sharding of model states over data-parallel ranks: states, groups, number of exchanges, wire formats.

The one reader of ``Plan.zero``: closed form, memory model and step graph ask a ``Sharding``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cached_property

import numpy as np

from core.records import record
from simulator.layout.stages import gathered_together
from simulator.plan import FULL, PIPELINE_INSIDE_DATA, Plans
from simulator.setting import Setting
from simulator.state.adapter import BASE_BYTES
from simulator.state.levels import ShardLevels, StateKind, level_devices
from simulator.state.policy import PLAIN, StatePolicy
from simulator.state.uneven import EVEN
from simulator.state.wire import WIRE_FORMATS, Wire

STATE_FIELDS = (
    "tensor",
    "pipeline",
    "context",
    "data",
    "expert",
    "expert_tensor",
    "zero",
    "shard_group",
    "first_stage_layers",
    "last_stage_layers",
    "rank_order",
    "policy",
)
"""The plan fields that decide the state of a device and its sharding group, for most models and schedules."""

LAYOUT_STATE_FIELDS = (*STATE_FIELDS, "virtual_pipeline", "schedule")
"""The plan fields that decide the state of a device where chunks do too, as with multi-token prediction."""


@record()
class StateGroups:
    """The ranks that share one kind of state: ``shard`` inside, ``replicas`` (further copies) outside."""

    shard: np.ndarray
    shard_stride: np.ndarray
    replicas: np.ndarray
    replica_stride: np.ndarray

    @classmethod
    def dense(cls, plans: Plans, limit: np.ndarray | None = None) -> StateGroups:
        """Ranks with the same dense parameters: context and data, ``tensor`` apart.

        ``limit`` is the number of devices that one shard group may span, shape (plans,); 0: no limit.
        """
        return cls._split(plans, plans.context * plans.data, plans.tensor, limit)

    @classmethod
    def experts(cls, plans: Plans, limit: np.ndarray | None = None) -> StateGroups:
        """Ranks with the same experts; ``limit`` as in ``dense``."""
        inside = plans.expert * plans.expert_tensor
        return cls._split(plans, plans.tensor * plans.context * plans.data // inside, inside, limit)

    @classmethod
    def stack(cls, kinds: Sequence[StateGroups], axes: int) -> StateGroups:
        """Groups of several kinds of state, shape (kinds, 1, ..., plans) with ``axes`` axes between."""
        shape = len(kinds), *(1,) * axes, -1
        return cls(*(np.stack([getattr(k, f.name) for k in kinds]).reshape(shape) for f in fields(cls)))

    @classmethod
    def _split(
        cls, plans: Plans, ranks: np.ndarray, stride: np.ndarray, limit: np.ndarray | None = None
    ) -> StateGroups:
        ranks = ranks // replica_groups(plans)
        shard = np.where(plans.shard_group > 0, np.minimum(plans.shard_group, ranks), ranks)
        # Data-parallel ranks lie outside the pipeline when the plan orders them so.
        outer = np.where(plans.rank_order == PIPELINE_INSIDE_DATA, plans.pipeline, 1)
        across = np.where(plans.context > 1, 1, outer)
        if limit is not None:
            inside = np.minimum(np.maximum(limit // (stride * across), 1), ranks)
            shard = np.where(limit > 0, np.gcd(inside, ranks), shard)
        return cls(shard, stride * across, ranks // shard, stride * across * shard)


@record()
class DistinctStates:
    """Distinct plans by the state of a device: the place of the first of each, every plan's distinct one."""

    plans: Plans
    first: np.ndarray
    index: np.ndarray

    @classmethod
    def of(
        cls, plans: Plans, names: Sequence[str] = STATE_FIELDS, values: Iterable[np.ndarray] = ()
    ) -> DistinctStates:
        """Distinct plans by the named fields and ``values`` of shape (plans,)."""
        first, index = plans.distinct(*names, values=values)
        return cls(plans.take(first), first, index)


def _wire_bytes(wire: Wire | None, name: str, otherwise: float) -> float:
    form = getattr(wire, name) if wire else None
    return WIRE_FORMATS[form].bytes if form else otherwise


def replica_groups(plans: Plans) -> np.ndarray | int:
    """Groups of replicas that exchange nothing inside a step, shape (plans,); 1 where all replicas do."""
    syncs = [policy.sync for policy in plans.policies]
    apart = [sync.groups if sync and sync.apart else -1 for sync in syncs]
    if max(apart) < 0:
        return 1
    groups = np.array(apart)[plans.policy]
    return np.where(groups < 0, 1, np.where(groups == 0, plans.data, groups))


class Sharding:
    """The sharding of each plan; arrays of shape (plans,).

    ZeRO shards the optimizer's state, then the gradients too, then the parameters too (Rajbhandari et al.
    2020, section 5). A rank that keeps no more than its shard of the gradients reduces them in every pass;
    one that keeps no more than its shard of the parameters gathers them in every pass, layer by layer.

    Args:
        setting: what the plans share; its framework sets formats on the wire and what is gathered when.
        plans: the plans.
    """

    def __init__(self, setting: Setting, plans: Plans) -> None:
        self.setting, self.plans = setting, plans
        framework = setting.framework
        gathered, reduced = framework.gathers.bytes, setting.choices.reduce_bytes
        self.gather_bytes: np.ndarray | float = gathered
        """Bytes of a gathered parameter on the wire, with its share of a scale."""
        self.reduce_bytes: np.ndarray | float = reduced
        """Bytes of a reduced gradient on the wire, with its share of a scale."""
        if any(policy.wire for policy in plans.policies):
            self.gather_bytes, self.reduce_bytes = (
                self.by_policy(lambda policy, name=name, width=width: _wire_bytes(policy.wire, name, width))
                for name, width in (("gather", gathered), ("reduce", reduced))
            )
        if setting.state_share != EVEN:
            self.gather_bytes = self.gather_bytes * setting.state_share.collective
            self.reduce_bytes = self.reduce_bytes * setting.state_share.collective
        self.gather_calls = framework.gathers.a_layer
        """Collectives that gather one layer where parameters are sharded."""

    @cached_property
    def optimizer(self) -> np.ndarray:
        """Whether the optimizer's state is sharded, and parameters are gathered once it has run."""
        return self.plans.zero >= 1

    @cached_property
    def gradients(self) -> np.ndarray:
        """Whether gradients are sharded, and reduced in every pass."""
        return self.plans.zero >= 2

    def unsharded(self, micro_batches: np.ndarray) -> np.ndarray:
        """Whether sharded gradients are added up unsharded over the micro batches and reduced once a step.

        One rank reduces nothing: no program shards a model over it (KempnerForge, parallel.py: apply_fsdp2).
        """
        several = (micro_batches > 1) & (self.plans.data * self.plans.context > 1)
        pipelined = self.setting.framework.gradients.once_in_pipelines & (self.plans.pipeline > 1)
        return self.gradients & several & (pipelined | self.setting.choices.unsharded_gradients)

    @cached_property
    def parameters(self) -> np.ndarray:
        """Whether parameters are sharded, and gathered in every pass, layer by layer."""
        return self.plans.zero >= 3

    @cached_property
    def scatters(self) -> np.ndarray:
        """Whether a reduction leaves each rank its shard: a reduce-scatter; else an all-reduce."""
        return self.plans.zero >= self.setting.framework.gradients.scatter_from_zero

    @cached_property
    def states(self) -> DistinctStates:
        """Distinct plans by ``STATE_FIELDS``."""
        return DistinctStates.of(self.plans)

    @cached_property
    def dense(self) -> StateGroups:
        """The ranks that share dense parameters."""
        return StateGroups.dense(self.plans)

    @cached_property
    def experts(self) -> StateGroups:
        """The ranks that share experts."""
        return StateGroups.experts(self.plans)

    @property
    def replica_groups(self) -> np.ndarray | int:
        """Groups of replicas that train apart, shape (plans,)."""
        return replica_groups(self.plans)

    @property
    def plain(self) -> bool:
        """Whether all plans keep their state on the device, in one lattice and the framework's formats."""
        return self.plans.policies == (PLAIN,)

    def group(self, kind: StateKind, experts: bool = False, copy: bool = False) -> StateGroups:
        """The ranks that share one class of state, of dense parameters or of experts.

        Args:
            kind: class of state.
            experts: of experts.
            copy: of the further copy of the parameters, where a plan has one, instead of the first.
        """
        limits = [self._limit(policy.shard, kind, copy) for policy in self.plans.policies]
        if not any(limits):
            return self.experts if experts else self.dense
        limit = np.array(limits)[self.plans.policy]
        return StateGroups.experts(self.plans, limit) if experts else StateGroups.dense(self.plans, limit)

    def groups(self, kind: StateKind, copy: bool = False) -> tuple[StateGroups, StateGroups]:
        """The ranks that share one class of state, dense and experts; arguments as in ``group``."""
        return self.group(kind, copy=copy), self.group(kind, experts=True, copy=copy)

    def pieces(self, kind: StateKind, experts: bool = False) -> np.ndarray:
        """Pieces of one class of state that lie on different ranks, each as large as the device's own.

        Shape (plans,); 1 where the state is whole.
        """
        sharded = {"parameters": self.parameters, "gradients": self.gradients, "optimizer": self.optimizer}
        pieces = self.group(kind, experts).shard
        if (share := self.setting.state_share.device) != 1:
            pieces = pieces / share if share else np.full(pieces.shape, np.inf)
        return np.where(sharded[kind], pieces, 1)

    @cached_property
    def copies(self) -> np.ndarray:
        """Whether a plan holds a further copy of its parameters, shape (plans,)."""
        there = [bool(policy.shard and policy.shard.copy_parameters) for policy in self.plans.policies]
        return np.array(there)[self.plans.policy] & self.parameters

    def _limit(self, shard: ShardLevels | None, kind: StateKind, copy: bool) -> int:
        if shard is None:
            return 0
        level = (shard.copy_parameters if copy else None) or shard.of(kind)
        return level_devices(self.setting.cluster, level) if level else 0

    def by_policy(self, value: Callable[[StatePolicy], float]) -> np.ndarray:
        """A number of each plan's policy, shape (plans,)."""
        return np.array([value(policy) for policy in self.plans.policies], dtype=np.float64)[
            self.plans.policy
        ]

    def owned(self, dense: np.ndarray, experts: np.ndarray) -> np.ndarray:
        """Number of a device's parameters whose optimizer state it holds."""
        count = dense / self.pieces("optimizer")
        if np.any(experts > 0):
            count = count + experts / self.pieces("optimizer", experts=True)
        return count * self.setting.trained

    @cached_property
    def gathered_share(self) -> float:
        """Mean bytes of a gathered parameter over those of a trained one: frozen ones keep their format."""
        adapter, trained = self.setting.training.adapter, self.setting.trained
        if adapter is None:
            return 1.0
        frozen = min(BASE_BYTES[adapter.base] / self.setting.framework.gathers.bytes, 1.0)
        return trained + (1 - trained) * frozen

    def reductions(self, micro_batches: np.ndarray) -> np.ndarray:
        """Reductions of a step: one, or one for each run of micro batches that share it."""
        together = gathered_together(self.plans, micro_batches)
        often = self.gradients & ~self.unsharded(micro_batches)
        return np.where(often, micro_batches / together, 1.0)

    def reduces_in_passes(self, micro_batches: np.ndarray) -> np.ndarray:
        """Whether each backward pass ends with waiting for the reduction of its gradients.

        FSDP2: FSDPParamGroup.finalize_backward; DeepSpeed, stage_1_and_2.py:
        independent_gradient_partition_epilogue.
        """
        alone = gathered_together(self.plans, micro_batches) == 1
        return self.gradients & ~self.unsharded(micro_batches) & alone

    def prefetches(self, layer: np.ndarray) -> np.ndarray:
        """Whether layers of ``layer`` parameters are gathered ahead of their use."""
        ahead = ~self.parameters | (layer <= self.setting.framework.gathers.prefetch_parameters)
        return ahead & self.plans.overlap_parameters.astype(bool)

    def in_turn(self, layer: np.ndarray) -> np.ndarray:
        """Whether gathers and reductions of layers of ``layer`` parameters run in turn and overlap nothing.

        A gather that is not issued ahead, as the layer is too large, waits behind the reduction of the layer
        before it on the same communicator, and the next kernels wait for the gather (Zhao et al. 2023,
        PyTorch FSDP, section 3.3.2).
        """
        return self.plans.overlap_parameters.astype(bool) & ~self.prefetches(layer)

    def backward_gathers(self, layer: np.ndarray) -> np.ndarray:
        """Gathers of a backward pass over layers of ``layer`` parameters that are sharded.

        Where recomputation gathers for itself, a weight is gathered again unless its next use, in the
        backward pass of the same layer, is no further than the framework keeps weights: twice what follows
        it there.
        """
        framework = self.setting.framework
        again = (self.plans.recompute == FULL) & framework.gathers.again
        reused = framework.gathers.reuse_parameters / (2 * np.maximum(layer, 1.0))
        return np.where(again, 2.0 - np.minimum(reused, 1.0), 1.0)

    def buckets(self, parameters: np.ndarray | float) -> np.ndarray:
        """Buckets (a fraction, at least 1) that an exchange of so many parameters is cut into, where they are
        not gathered layer by layer; all but one have kernels to run beside. Frozen parameters are in none."""
        framework, ranks = self.setting.framework, self.plans.data * self.plans.context
        size = np.maximum(
            framework.gradients.bucket_parameters, framework.gradients.bucket_parameters_per_rank * ranks
        )
        return np.maximum(parameters * self.setting.trained / size, 1.0)
