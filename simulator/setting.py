"""The fixed inputs of all plans of a question: model, cluster, workload and framework."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from simulator.degree_costs import grouped_step
from simulator.frameworks import Framework
from simulator.levers import BY_PLAN, SHARED, Choices, modules_of
from simulator.models import Model
from simulator.ops import Batch, Formats, Implementation, Rank, Shard
from simulator.ops.adapters import is_adapter, with_adapters
from simulator.ops.build import CAST_BYTES, SCALE_BYTES
from simulator.ops.counts import attention_flops_per_token, matmul_flops_per_token, model_parameters
from simulator.ops.layer import layers
from simulator.packing.costs import DegreeCosts
from simulator.packing.grouped_steps import GroupedStep, GroupedSteps, equal_micro_batches
from simulator.packing.steps import MicroBatches
from simulator.plan import NO_LEVERS, Choice, Plan, Plans
from simulator.pricing import Prices
from simulator.site import Site
from simulator.slowest_rank import slowest_of
from simulator.state.formats import COPIED_STATES, MOMENT_BYTES
from simulator.state.uneven import EVEN, StateShare
from simulator.stragglers import Straggler
from simulator.workload import Training

IMPLEMENTED = tuple(field.name for field in fields(Implementation))
"""What a layer's ops read of a framework."""


@dataclass(frozen=True)
class Setting:
    """The fixed inputs of a cost computation; plans vary."""

    model: Model
    cluster: Cluster
    training: Training
    framework: Framework
    stragglers: tuple[Straggler, ...] = ()
    """Stragglers of the job; only the event engine reads them."""
    site: Site | None = None
    """What measured steps of the user say about the parts of a step."""
    allow: tuple[str, ...] = ()
    """Rules of the release that the user sets aside (``simulator.rules.release``)."""
    state_share: StateShare = EVEN
    """Part of the sharded state that a device holds, where devices differ in it."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "cluster", self.cluster.paced(*(self.site.link_pace if self.site else (1, 1)))
        )
        object.__setattr__(self, "framework", self.framework.under(self.training.precision))

    def __getstate__(self) -> dict[str, Any]:
        """State for other processes: the fields, without cached properties."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def choices(self) -> Choices:
        """What launch scripts choose: the defaults of the framework, with those of ``with_choices``."""
        return Choices.of(self.framework.defaults)

    @cached_property
    def _variants(self) -> dict[tuple[tuple[str, Any], ...], Setting]:
        return {}

    @cached_property
    def layouts(self) -> dict[tuple[Any, ...], Any]:
        """Layers of stages and ops of lone plans that were listed before, by what is read of the plans."""
        return {}

    def with_choices(self, **levers: Any) -> Setting:
        """The setting with some levers chosen; None leaves one to the framework."""
        changed = tuple((n, v) for n, v in levers.items() if v is not None and v != getattr(self.choices, n))
        if not changed:
            return self
        if changed not in self._variants:
            defaults = {**self.framework.defaults, **dict(changed)}
            framework = self.framework.model_copy(update={"defaults": defaults})
            variant = self._variants[changed] = replace(self, framework=framework)
            # No lever changes the speed of the device's kernels.
            vars(variant).update(kernels=self.kernels, prices=self.prices)
        return self._variants[changed]

    def of(self, plans: Plans | Plan) -> Setting:
        """The setting with the levers that all plans share, or with all levers of one plan."""
        if isinstance(plans, Plan):
            return self.with_choices(**{name: getattr(plans, name) for name in (*SHARED, *BY_PLAN)})
        stated = () if plans.shared is NO_LEVERS else SHARED
        return self.with_choices(**{name: getattr(plans.shared, name) for name in stated})

    def by_levers(self, plans: Plans) -> list[tuple[Setting, np.ndarray]]:
        """The plans by the levers of ``BY_PLAN``: the setting that chooses them, and the plans' indices."""
        columns = [getattr(plans, name) for name in BY_PLAN]
        if not len(plans) or all((column == column[0]).all() for column in columns):
            groups = [np.arange(len(plans))]
        else:
            inverse = np.unique(np.stack(columns), axis=1, return_inverse=True)[1].reshape(-1)
            groups = [np.flatnonzero(inverse == number) for number in range(int(inverse.max()) + 1)]
        return [
            (self.with_choices(**_levers(plans, int(group[0]))) if len(group) else self, group)
            for group in groups
        ]

    @cached_property
    def kernels(self) -> KernelModel:
        """Kernel times of the cluster's device under steady load.

        The forms without residuals, which in part reflect the burst before clocks settle.
        """
        return self.cluster.device.kernels.sustained().uncorrected()

    @cached_property
    def prices(self) -> Prices:
        """Pricing conditions of a step's ops. In a training step every operand comes from memory."""
        cold = self.cluster.device.generation.cold_operands
        share = self.framework.kernels.product_share
        return Prices(
            self.kernels, self.cluster, cold=cold, experts_as_dense=True, product_share=share, site=self.site
        )

    @cached_property
    def formats(self) -> Formats:
        """Number formats of a step's ops."""
        return Formats(
            self.linear_dtype,
            self.core_dtype,
            output=self.linear_dtype if self.choices.narrow_output else "",
            width=self.width,
            operand_width=self.operand_width,
            gradient_width=self.gradient_width,
            partial_width=self.width,
            kept_width=CAST_BYTES.get(self.training.precision, self.width),
        )

    @cached_property
    def implementation(self) -> Implementation:
        """Kernels of a step: facts of the release and levers reach ops by their name.

        Those that the model, the number format or the links change are listed here.
        """
        framework, cluster, choices = self.framework, self.cluster, self.choices
        added = self.width + 2 * choices.gradient_bytes if framework.gradients.adds_first else 0
        if framework.gradients.cast:
            # Cast (read, write), add (read both, write); autograd's own gradient cleared, and added to.
            added = self.width + 4 * choices.gradient_bytes
            added += 4 * self.width * framework.gradients.clears_working
        per_expert = choices.grouped_launches == "per-expert"
        passes, launches, shared = framework.casts.of(self.linear_dtype, choices.scaling)
        library = choices.dispatcher_library
        rates = cluster.network.dispatcher(library)
        return replace(
            Implementation(**_named_alike(framework.kernels), **_named_alike(choices)),
            rotary=choices.rotary or (framework.kernels.scaled_rotary if self.model.scales_heads else ""),
            joins_sums=framework.kernels.joins_sums and choices.elementwise == "fused",
            dropout=self.dropout,
            cast_passes=passes,
            cast_launches=launches,
            casts_by_expert=per_expert and not shared,
            casts_weights=framework.casts.weights and not self.frozen_narrow,
            rescale_passes=framework.casts.rescales,
            swizzles=choices.swizzled_scales,
            accumulated_bytes=0 if choices.fused_accumulation else added,
            accumulated_table_bytes=added,
            accumulation_launches=(
                2 + 2 * framework.gradients.clears_working if framework.gradients.cast else 1
            ),
            experts=choices.grouped_launches,
            skips_blocks=choices.skips_blocks
            and (framework.kernels.sinks_skip_blocks or not self.model.attention_sinks),
            flex_permutes=library == "hybridep",
            exchange_share=cluster.network.constants.exchange_share,
            flex_domain=cluster.levels[-1].dispatcher(library),
            flex_combined_per_s=cluster.levels[-1].combined_per_s(library),
            flex_network=rates.share / cluster.network.constants.all_to_all_efficiency,
            flex_start_s=rates.start_s,
            flex_copies_per_s=rates.copies_per_s,
            domain=cluster.domain,
            node=cluster.devices_per_node,
            mesh=cluster.levels[-1].mesh,
            loss=choices.cross_entropy,
        )

    @property
    def causal(self) -> bool:
        """Whether attention looks back only: neither the model nor the workload says otherwise."""
        return self.model.causal and self.training.causal

    def rank(self, plans: Plans) -> Rank:
        """One rank's view of a micro batch; cases are plans."""
        return self._rank(plans, self.sharing(plans), *self.sequences(plans))

    def _rank(
        self, plans: Plans, context: np.ndarray, sequences: np.ndarray, length: np.ndarray | int
    ) -> Rank:
        """One rank's view of sequences that ``context`` ranks share."""
        shard = Shard(
            plans.tensor,
            context,
            plans.expert,
            plans.expert_tensor,
            plans.sequence_parallel.astype(bool),
            plans.context_algorithm,
            plans.head_ranks_of(context),
            self.training.expert_load,
        )
        source = self.training.source if self.model.encoder else None
        batch = Batch.training(sequences, length, self.causal, source)
        return Rank(self.model, batch, shard, self.formats, self.implementation)

    def sharing(self, plans: Plans) -> np.ndarray:
        """Context-parallel ranks that share the sequences of a micro batch, shape (plans,)."""
        unequal = self.micro_batches(plans)
        return plans.context if unequal is None or unequal.context is None else unequal.context

    def sequences(self, plans: Plans) -> tuple[np.ndarray, np.ndarray | int]:
        """Sequences of a micro batch and their length; equal ones of the same cost where documents differ."""
        unequal = self.micro_batches(plans)
        equal = plans.micro_batch, self.training.seq_len
        return equal if unequal is None else (unequal.sequences, unequal.length)

    def micro_batches(self, plans: Plans) -> MicroBatches | None:
        """Micro batches of the slowest replica where documents differ in length."""
        drawn = self.training.drawn
        if drawn is None:
            return None
        if not isinstance(drawn, GroupedSteps):
            return drawn.of(plans.data, plans.micro_batch, self.square_cost)
        steps = [self.grouped(plans.plan(index)) for index in range(len(plans))]
        return equal_micro_batches(filter(None, steps))

    def grouped(self, plan: Plan) -> tuple[DegreeCosts, GroupedStep] | None:
        """Costs of groups of each degree, and the drawn steps; None where all groups are equal."""
        drawn = self.training.drawn
        if not isinstance(drawn, GroupedSteps):
            return None
        key = plan.model_dump_json()
        if key not in self._groups:
            self._groups[key] = self._grouped(drawn, plan)
        return self._groups[key]

    @cached_property
    def _groups(self) -> dict[str, tuple[DegreeCosts, GroupedStep]]:
        return {}

    def _grouped(self, drawn: GroupedSteps, plan: Plan) -> tuple[DegreeCosts, GroupedStep]:
        return grouped_step(drawn, plan, self.training, partial(self._rank, Plans.of(plan)), self.prices)

    def paces(self, plan: Plan) -> list[float]:
        """Seconds of micro batches of a usual step over those of the mean one; empty where all are equal."""
        drawn, grouped = self.training.drawn, self.grouped(plan)
        if grouped is not None:
            return grouped[1].relative_paces
        if drawn is None or isinstance(drawn, GroupedSteps):
            return []
        return drawn.paces(plan.data, plan.micro_batch, self.square_cost)

    @cached_property
    def square_cost(self) -> float:
        """FLOPs of attention for a squared token over those of linear layers for a token."""
        length = self.training.attended
        attention = float(attention_flops_per_token(self.model, length, self.causal))
        return attention / length / matmul_flops_per_token(self.model)

    @cached_property
    def longest(self) -> Setting:
        """The setting whose documents all have the longest length: its micro batches need most memory."""
        return self if self.training.drawn is None else replace(self, training=self.training.longest)

    @cached_property
    def over_layers(self) -> Setting:
        """The setting with the router's load of the rank that is fullest over all layers."""
        training = self.training.over_layers(self.model.moe_layers)
        return self if training is self.training else replace(self, training=training)

    def tokens(self, plans: Plans, mixer: str = "full") -> np.ndarray:
        """Tokens of a micro batch that one context-parallel rank holds in a layer, shape (plans,)."""
        sequences, length = self.sequences(plans)
        return sequences * (self.training.source if mixer == "source" else length) / self.sharing(plans)

    def read_seconds(self, plans: Plans) -> np.ndarray:
        """Host time to read the tokens of one micro batch one by one, shape (plans,); each rank reads all."""
        return self.framework.host.seconds_per_token * plans.micro_batch * self.training.seq_len

    def mask_seconds(self, plans: Plans) -> np.ndarray:
        """Host time of the first and the last stage to build one micro batch's mask, shape (plans,)."""
        return self.framework.host.mask_seconds * self.training.seq_len**2 * (plans.pipeline > 1)

    @cached_property
    def pace(self) -> float:
        """Kernel time of the slowest device over that of the average device."""
        return slowest_of(self.cluster.devices)

    @property
    def host_seconds_per_kernel(self) -> float:
        """Host time to launch a kernel, s."""
        return self._host_seconds * (self.site.factor("host") if self.site else 1.0)

    @property
    def _host_seconds(self) -> float:
        stated_s = self.framework.host.seconds_per_kernel
        if stated_s is not None:
            unbound = 1.0 if self.choices.binds_processes else self.cluster.unbound_slowdown
            return stated_s * unbound * self.cluster.host_slowdown
        launch = self.kernels.launch_seconds
        if self.launches_ahead:  # a CPU's kernels are timed with the call that starts them
            return launch * self.cluster.host_slowdown
        return max(launch - float(self.kernels.memory_bound(0.0)), 0.0)

    @property
    def host_seconds_per_looped_kernel(self) -> float:
        """Host time of a kernel that a loop in C++ launches: the driver's alone."""
        driver_s = self.kernels.launch_seconds * self.cluster.host_slowdown
        return min(driver_s, self._host_seconds) * (self.site.factor("host") if self.site else 1.0)

    @property
    def graphs(self) -> str:
        """Kernels replayed from CUDA graphs: none, router, attention, layer or step."""
        if self.choices.graphs == "slow-hosts":
            return "attention" if self.cluster.host_slowdown > 1.0 else "none"
        return self.choices.graphs

    @property
    def launches_ahead(self) -> bool:
        """Whether the host launches kernels while the device runs others; not on a CPU."""
        return self.choices.launches_ahead and self.cluster.device.generation.launches_ahead

    @property
    def linear_dtype(self) -> str:
        """Number format of the matrix products of linear layers."""
        return self.training.precision

    @property
    def core_dtype(self) -> str:
        """Number format of attention and of the output layer, if no lever narrows it: 16 bits at least."""
        return "bf16" if self.training.precision in ("fp8", "mxfp8", "nvfp4") else self.training.precision

    @property
    def parameter_bytes(self) -> float:
        """Bytes of a kept parameter, without a separate 32-bit copy."""
        mixed = self.training.mixed and self.choices.states in COPIED_STATES
        return 4 if mixed and not self.framework.memory.separate_master else self.width

    @property
    def optimizer_bytes(self) -> float:
        """Bytes of the optimizer's state of one parameter: Adam's moments, and a separate 32-bit copy."""
        if self.choices.states not in COPIED_STATES:
            return MOMENT_BYTES[self.choices.states]
        moments = 8 if self.choices.states == "mixed" else 4
        return moments + (4 if self.training.mixed and self.framework.memory.separate_master else 0)

    @property
    def gradient_bytes(self) -> float:
        """Bytes of an accumulated gradient, with autograd's own beside it."""
        if self.choices.states not in COPIED_STATES:
            return self.width
        return self.choices.gradient_bytes + self.framework.memory.working_gradient_bytes

    @property
    def update_bytes(self) -> float:
        """Memory traffic of the update of one parameter: that of mixed states, by the bytes of the state."""
        mixed = 20.0 if self.training.mixed and self.framework.memory.separate_master else 16.0
        state = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
        share = 1.0 if self.choices.states == "mixed" else state / mixed
        return share * self.framework.kernels.optimizer_bytes_per_parameter

    @property
    def mtp_layers(self) -> int:
        """Layers of multi-token prediction that the step trains."""
        return self.model.trained_mtp_layers if self.choices.trains_mtp else 0

    @property
    def predictions(self) -> int:
        """Further predictions of a step: passes through the output layer beyond the first."""
        return (self.model.mtp_layers or self.model.mtp_passes) if self.choices.trains_mtp else 0

    @property
    def width(self) -> int:
        """Bytes of one activation element."""
        return self.training.activation_bytes

    @property
    def operand_width(self) -> float:
        """Bytes of one element of a linear layer's input, as tensor-parallel ranks gather it.

        In narrow formats it is cast before it is gathered, and scales of blocks travel with it (Transformer
        Engine's quantised all-gathers, distributed.py; torchao's float8 tensor parallelism with one scale a
        tensor).
        """
        if not self.framework.casts.before_gather:
            return self.width
        return CAST_BYTES.get(self.training.precision, self.width)

    @property
    def gradient_width(self) -> float:
        """Bytes of one element of a linear layer's output gradient, as tensor-parallel ranks gather it.

        Blocks are scaled along rows for one product and along columns for the other, so that both versions
        are gathered (Transformer Engine, distributed.py: row-wise and column-wise data of MXFP8 and NVFP4).
        """
        both = self.framework.casts.before_gather and self.training.precision in SCALE_BYTES
        return 2 * self.operand_width if both else self.operand_width

    @property
    def frozen_narrow(self) -> bool:
        """Whether frozen weights lie in the format that products read, so that no pass casts them."""
        adapter = self.training.adapter
        return adapter is not None and adapter.base == self.linear_dtype

    @cached_property
    def trained(self) -> float:
        """Share of the parameters that is trained: 1, or that of adapters beside frozen parameters."""
        adapter, groups = self.training.adapter, self.model.layer_groups
        if adapter is None:
            return 1.0
        rank = self.rank(Plans.of(Plan.model_validate({})))
        listed = with_adapters(layers(rank, groups), adapter, rank.formats)
        adapters = sum(
            len(places) * sum(float(np.max(op.parameters)) for op in ops if is_adapter(op))
            for ops, places in zip(listed, groups.values(), strict=True)
        )
        return adapters / (adapters + model_parameters(self.model))

    @property
    def dropout(self) -> bool:
        """Whether dropout kernels run."""
        return self.choices.dropout if self.training.dropout is None else self.training.dropout


def _levers(plans: Plans, index: int) -> dict[str, Any]:
    """The levers of ``BY_PLAN`` of one plan."""
    words = {name: Choice[name][int(getattr(plans, name)[index])] for name in BY_PLAN if name in Choice}
    return {**words, "recompute_modules": modules_of(int(plans.recompute_modules[index]))}


def _named_alike(facts: object) -> dict[str, Any]:
    """Facts that ``Implementation`` has under the same name."""
    return {name: getattr(facts, name) for name in IMPLEMENTED if hasattr(facts, name)}
