"""The step program of one plan, from the costs of the analytic prediction."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from hwmodels.collectives.cost import Cost
from simulator.engine.clock import Contention
from simulator.engine.graph import Stream
from simulator.engine.timeline import Timeline
from simulator.layout.parameters import parameters
from simulator.layout.stages import FIRST, Spread, Stages
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT
from simulator.setting import Setting
from simulator.training import micro_batches, predict, tied_embedding
from simulator.training.activations import kept_by_layers
from simulator.training.boundary import hop_transfer
from simulator.training.data_parallel import InEachPass, host_waits, once_a_step
from simulator.training.ends import embedding, head
from simulator.training.expected import layers
from simulator.training.memory import memory
from simulator.training.outer import synchronised_apart
from simulator.training.overlap import Exchange, mean_slows
from simulator.training.placement_shares import placed
from simulator.training.sharding import Sharding
from simulator.training.state_moves import move_copy, move_state
from simulator.training.step_graph import run
from simulator.training.step_graph.host_update import UPDATED, HostWork, Start, host_work
from simulator.training.step_graph.loads import communication, scalar
from simulator.training.step_graph.offloaded import offloaded_seconds
from simulator.training.step_graph.output import output_work
from simulator.training.step_graph.passes import StagePasses, first_of, last_of
from simulator.training.step_graph.ports import ports
from simulator.training.step_graph.step import (
    Attached,
    ChunkWork,
    LinkDemand,
    OutputWork,
    Pass,
    Replicas,
    StepProgram,
    StreamWork,
)
from simulator.training.step_graph.streams import (
    COMPUTE,
    DATA,
    EXPERT,
    FROM_HOST,
    GRADIENTS,
    NAMES,
    PARAMETERS,
    PIPELINE,
    RECOMPUTE,
    SYNC,
    TENSOR,
    TIED,
    TO_HOST,
)
from simulator.training.tiers import Offload


def step_program(setting: Setting, plan: Plan) -> StepProgram:
    """One training step of a plan, from the same costs that the analytic prediction adds up.

    Raises:
        InputError: the schedule cannot run with the plan's stages, micro batches and chunks.
    """
    return _Build(setting, plan).program()


def simulate(setting: Setting, plan: Plan) -> Timeline:
    """Run one training step of a plan; its step time is the timeline's ``period``.

    Raises:
        InputError: the schedule cannot run with the plan's stages, micro batches and chunks.
    """
    return run(step_program(setting, plan))


class _Build:
    """Shared state of the parts of one program; every array holds one plan."""

    def __init__(self, setting: Setting, plan: Plan) -> None:
        setting = setting.of(plan)
        self.setting, self.plan = setting, plan
        self.plans = Plans.of(plan)
        self.stride = int(self.plans.pipeline_stride[0])
        self.schedule = get_schedule(plan.schedule)
        self.micro_batches = int(micro_batches(setting, self.plans)[0])
        self.schedule.check(plan.pipeline, self.micro_batches, plan.virtual_pipeline)
        self.stages = Stages.of(setting, self.plans)
        self.counts = parameters(setting, self.plans, self.stages)
        self.unit = int(self.schedule.gathered_together(plan.pipeline, self.micro_batches))
        self.route = self.schedule.routes(plan.pipeline, plan.virtual_pipeline)[0]
        self.sharding = Sharding(setting, self.plans)
        self.in_passes = bool(self.sharding.parameters[0])
        """Whether parameters are gathered in every pass, layer by layer."""
        self.spread = Spread.of(setting, self.plans)
        self.layers = self.spread.lengths
        self.kinds = layers(setting, self.plans)
        self.ends = embedding(setting, self.plans), head(setting, self.plans)
        self.static, self.held_by_layer = self._memory()
        self.tiers = Offload(self.sharding) if placed(self.sharding) else None
        """Copies between tiers, where the plan keeps state off the device."""
        kept_layers = kept_by_layers(setting, self.plans, self.stages.groups, self.counts.ops)
        self.kept_whole = [scalar(layer.between_passes) for layer in kept_layers]

    def _communication(self, name: str, cost: Cost, stream: Stream, part: str = "") -> StreamWork:
        return communication(self.setting.cluster, name, cost, stream, part)

    def _transfers(self) -> tuple[StreamWork, dict[tuple[int, int], StreamWork]]:
        """A send over the outermost level that any crosses, and those between ranks that meet below it."""
        routes = self.schedule.routes(self.plan.pipeline, self.plan.virtual_pipeline)
        pairs = {
            way
            for route in routes
            for (sender, _), (receiver, _) in pairwise(route)
            for way in ((sender, receiver), (receiver, sender))
            if sender != receiver
        }
        between = self.setting.cluster.level_between
        levels = {way: int(between(self.stride, *way)) for way in sorted(pairs)}
        sends = {
            level: self._communication("send", hop_transfer(self.setting, self.plans, level), PIPELINE)
            for level in {0, *levels.values()}
        }
        outermost = max(levels.values(), default=0)
        below = {way: sends[level] for way, level in levels.items() if level < outermost}
        return sends[outermost], below

    def program(self) -> StepProgram:
        plan = self.plan
        transfer, transfers = self._transfers()
        shapes: dict[tuple[tuple[tuple[int, float], ...], bool, bool, int], ChunkWork] = {}
        work = []
        for position, chunk_layers in enumerate(self.spread.positions):
            row = self.spread.classes[self.route[position][0]]
            shape = chunk_layers, position == 0, position == len(self.route) - 1, row
            if shape not in shapes:
                shapes[shape] = self._chunk(*shape)
            work.append(shapes[shape])
        return StepProgram(
            schedule=self.schedule,
            stages=plan.pipeline,
            micro_batches=self.micro_batches,
            chunks=plan.virtual_pipeline,
            work=tuple(work),
            transfer=transfer,
            transfers=transfers,
            blocking=not plan.overlap_pipeline,
            paces=self._paces(),
            gather="pass" if self.in_passes else "step",
            reduce="pass" if self.sharding.gradients[0] else "step",
            unit=self.unit,
            prefetch=self._prefetch(),
            overlap_gradients=plan.overlap_gradients,
            in_turn=self.in_passes and bool(self.sharding.in_turn(self.counts.largest_layer)[0]),
            finish=self._finishes(),
            host_updates=self._beside_passes(),
            updates_from="backward" if self._starts("backward") else "step",
            static=self.static,
            ports=ports(self.setting.cluster, plan.pipeline, self.stride),
            synchronous=not self.schedule.post_validation,
            output=self._output(),
            replicas=self._replicas(),
            contention=self._contention(),
        )

    def _paces(self) -> tuple[float, ...]:
        """Kernel time of each micro batch over that of the mean one, where documents differ in length."""
        unequal = self.setting.micro_batches(self.plans)
        stretch = 1.0 if unequal is None else scalar(np.asarray(unequal.stretch))
        return tuple(pace * stretch for pace in self.setting.paces(self.plan))

    def _contention(self) -> Contention:
        """Slow-down of kernels beside data-parallel traffic, and beside that of other streams."""
        layers = [passes for kind in self.kinds for passes in (kind.forward, kind.backward_input)]
        lost = {
            DATA: mean_slows(self._exchanges()),
            TENSOR: mean_slows(passes.tensor for passes in layers),
            EXPERT: mean_slows(passes.expert for passes in layers),
        }
        slower = {stream.name: 1 / (1 - share) for stream, share in lost.items()}
        others = tuple((name, slow) for name, slow in slower.items() if slow != slower[DATA.name])
        return Contention(slower[DATA.name], 1.0, others)

    def _exchanges(self) -> tuple[Exchange, ...]:
        """Rounds of gathering and reducing the state of each class of stage; arrays of shape (classes, 1)."""
        counts, m = self.counts, np.array([self.micro_batches])
        if not self.in_passes:
            step = once_a_step(self.sharding, counts.dense, counts.experts, m)
            return step.gather, step.reduce
        layers = np.maximum(np.ceil(self.stages.total), 1)
        passes = InEachPass.of(self.sharding, layers, counts.dense, counts.experts, m)
        return passes.forward, passes.backward, passes.reduce

    def _prefetch(self) -> int:
        """Number of gathers ahead of use: one layer under full sharding, all where a step gathers once.

        Where micro batches share a gather, the next chunk's layers are gathered beside this one's passes.
        """
        if not self.sharding.prefetches(self.counts.largest_layer)[0]:
            return 0
        if not self.in_passes:
            return 10**9
        return int(max(self.layers)) if self.unit > 1 else 1

    # ---- passes ------------------------------------------------------------------------------------

    def _chunk(self, layers: tuple[tuple[int, float], ...], first: bool, last: bool, row: int) -> ChunkWork:
        """The passes of one position on a class of stage; a layer may lie there in part."""
        split = self.schedule.splits_backward
        front, back = self.ends
        forward, backward, weight = (
            StagePasses(NAMES[kind], self.setting.cluster) for kind in (FORWARD, BACKWARD, WEIGHT)
        )
        reducing = weight if split else backward
        if not layers:  # an end of the model alone gathers and reduces like a layer
            for passes in (forward, backward, weight):
                passes.begin_layer()
        forward.wait("fetch", self.setting.framework.host.fetch_seconds / self.plan.virtual_pipeline)
        if first or last:
            forward.wait("fetch", float(self.setting.mask_seconds(self.plans)[0]))
        if self.in_passes:
            gathered, together = np.array([max(len(layers), 1)]), np.array([self.micro_batches])
            waits = host_waits(self.sharding, gathered, together)
            forward.wait("launch", float(waits[0][0]))
            backward.wait("launch", float(waits[1][0]))
        if first:
            forward.add("embedding", front.forward)
        for number, (group, share) in enumerate(layers):
            forward.begin_layer()
            forward.add(f"layer {number}", self.kinds[group].forward, share)
        if last and not self.schedule.output_barriers:
            forward.add("output layer", back.forward)
            backward.add("output layer", back.backward_input)
            reducing.add("output layer", back.backward_weight)
        if last:
            forward.wait("read", float(self.setting.read_seconds(self.plans)[0]))
        for number, (group, share) in reversed(list(enumerate(layers))):
            for passes in (backward, weight) if split else (backward,):
                passes.begin_layer()
            name, layer = f"layer {number}", self.kinds[group]
            backward.add(f"recompute {number}", layer.recompute, share, RECOMPUTE)
            backward.add(name, layer.backward_input, share)
            reducing.add(name, layer.backward_weight, share)
        if first:
            backward.add("embedding", front.backward_input)
        activations = sum(self.held_by_layer[group] * share for group, share in layers)
        self._add_copies(forward, backward, layers, row)
        passes = forward.done(), backward.done(), weight.done() if split else ()
        window = sum(work.seconds for passed in passes for work in passed if work.stream == COMPUTE)
        work = ChunkWork(
            *passes,
            activation=activations,
            activation_for_weight=activations,
            offload=StreamWork(
                "offload",
                offloaded_seconds(self.setting, self.stride, scalar(activations), window),
                load=LinkDemand(sent=(("host", activations),)),
            ),
        )
        return self._attach(work, forward, backward, reducing, row)

    def _add_copies(
        self, forward: StagePasses, backward: StagePasses, layers: tuple[tuple[int, float], ...], row: int
    ) -> None:
        """Copies between tiers, layer by layer; those back are the mirror image of those out."""
        if not self.tiers or not layers:
            return
        share = self.schedule.copies * len(self.route) / self.plan.pipeline
        activations = np.array([sum(self.kept_whole[group] * part for group, part in layers)])
        parameters_here, count = self.counts.total[row] / share, np.array([float(len(layers))])
        both = self.tiers.copies(activations, parameters_here, count)
        for passes, copies in zip((forward, backward), both, strict=True):
            for stream, each in zip((TO_HOST, FROM_HOST), copies, strict=True):
                beside, in_turn, last = (scalar(seconds) for seconds in each)
                passes.copy(stream, beside, round(beside / last) if last else 1, in_turn)

    def _attach(
        self, work: ChunkWork, forward: StagePasses, backward: StagePasses, reducing: StagePasses, row: int
    ) -> ChunkWork:
        """Add the data-parallel collectives of this position."""
        if self.plan.data * self.plan.context == 1 or not forward.layers:
            return work
        share = self.schedule.copies * len(self.route) / self.plan.pipeline
        dense = float(self.counts.dense[row, 0]) / share
        experts = float(self.counts.experts[row, 0]) / share
        units = self._units(forward, dense + experts)
        gather, again_from, reduce = self._collectives(dense, experts, units)
        again = float(self.sharding.backward_gathers(np.array([(dense + experts) / units]))[0])
        first, second = (
            self._communication("gather", cost, DATA, PARAMETERS) for cost in (gather, again * again_from)
        )
        reduction = self._communication("reduce", reduce, DATA, GRADIENTS)

        def attached(places: list[int], segment: StreamWork) -> tuple[Attached, ...]:
            # The memory model counts gathered units as workspace, which is static here.
            return tuple(Attached(place, segment) for place in places)

        forward_gathers = backward_gathers = reductions = ()
        if self.in_passes or (self.sharding.optimizer[0] and self.plan.overlap_parameters):
            forward_gathers = attached(first_of(forward.layers, units), first)
        if self.in_passes:
            backward_gathers = attached(first_of(backward.layers, units), second)
        if self.in_passes or self.plan.overlap_gradients:
            reductions = attached(last_of(reducing, units), reduction)
        return replace(
            work,
            forward_gathers=forward_gathers,
            backward_gathers=backward_gathers,
            reductions=reductions,
        )

    def _units(self, forward: StagePasses, count: float) -> int:
        """Collectives that a position's parameters are cut into: layers, or buckets."""
        layers = len(forward.layers)
        if self.in_passes:
            return max(layers, 1)
        return int(np.clip(np.ceil(scalar(self.sharding.buckets(count))), 1, layers))

    def _collectives(self, dense: float, experts: float, units: int) -> tuple[Cost, Cost, Cost]:
        """One gather of a forward and of a backward pass, and one reduction, of a number of them that moves
        these parameters; several buckets of a layer count as one."""
        counts = np.array([dense]), np.array([experts])
        buckets = np.ceil(scalar(self.sharding.buckets(counts[0] + counts[1])))
        calls = units * float(self.sharding.gather_calls) if self.in_passes else max(units, buckets)
        reductions = float(units) if self.in_passes else calls
        gather, reduce = move_state(self.sharding, *counts, calls, reductions)
        copied = move_copy(self.sharding, *counts, calls, gather)
        first, second, reduction = (cost * (1 / units) for cost in (gather, copied, reduce))
        return first, second, reduction

    def _replicas(self) -> tuple[Replicas, ...]:
        """Replicas without a slow stage, and those with one."""
        slow = self.setting.stragglers
        healthy = self.plan.data - sum(straggler.replicas for straggler in slow)

        def stages(at: int, value: float) -> tuple[float, ...]:
            return tuple(value if stage == at else 1.0 for stage in range(self.plan.pipeline))

        return (
            *((Replicas(healthy),) if healthy or not slow else ()),
            *(
                Replicas(each.replicas, stages(each.stage, each.slowdown), stages(each.stage, each.bandwidth))
                for each in slow
            ),
        )

    def _output(self) -> OutputWork | None:
        if not self.schedule.output_barriers:
            return None
        return output_work(self.setting, self.plan, self.schedule, self.stride)

    # ---- once a step -------------------------------------------------------------------------------

    def _finishes(self) -> tuple[Pass, ...]:
        """The finish of each rank; it is the same for all ranks of one class."""
        rows = list(self.spread.classes)
        by_class = {row: self._finish(rows.index(row)) for row in dict.fromkeys(rows)}
        return tuple(by_class[row] for row in rows)

    @cached_property
    def host_updates(self) -> dict[int, HostWork]:
        """The update off the device of each class of stage; none where all state stays on it."""
        if not self.tiers:
            return {}
        m = np.array([self.micro_batches])
        return {
            row: host_work(
                self.tiers, once_a_step(self.sharding, self.counts.dense[row], self.counts.experts[row], m)
            )
            for row in dict.fromkeys(self.spread.classes)
        }

    def _starts(self, start: Start) -> bool:
        return any(each.start == start for each in self.host_updates.values())

    def _beside_passes(self) -> tuple[Pass, ...]:
        if not self.host_updates or self._starts("finish"):
            return ()
        return tuple(self.host_updates[row].work for row in self.spread.classes)

    def _finish(self, rank: int) -> Pass:
        """Exposed reductions, sums and copies of gradients, the optimizer, gathering of its results."""
        row = self.spread.classes[rank]
        dense, experts = self.counts.dense[row], self.counts.experts[row]
        plan, setting, finish = self.plan, self.setting, []
        step = once_a_step(self.sharding, dense, experts, np.array([self.micro_batches]))

        def add(name: str, cost: Cost, part: str = GRADIENTS) -> None:
            finish.append(self._communication(name, cost, DATA, part))

        if not plan.overlap_gradients:
            add("reduce", step.reduce.cost * step.reductions)
        if rank in (0, plan.pipeline - 1) and not (self.schedule.returns or self.schedule.output_barriers):
            add(TIED, tied_embedding(setting, self.plans))
        if self.schedule.copies > 1:
            # The gradients of a stage, summed over the ranks that hold it in the two directions.
            size = scalar(self.counts.total[row]) * self.sharding.reduce_bytes
            add("reduce replicas", setting.cluster.collective_cost("all_reduce", size, 2, self.stride))
        add("reduce between levels", step.narrowed)
        finish.append(StreamWork("gradient elementwise", scalar(step.gradient_kernels), part="elementwise"))
        host_update = self.host_updates.get(row)
        if host_update is None:
            finish.append(StreamWork("optimizer", scalar(step.optimizer), part="optimizer"))
        elif host_update.start == "finish":
            finish = list(host_update.behind([segment for segment in finish if segment.seconds > 0]))
        elif host_update.kernels:
            finish.append(host_update.kernels)
        if not plan.overlap_parameters:
            add("gather", step.gather.cost, PARAMETERS)
        add("gather between levels", step.widened, PARAMETERS)
        if synchronised_apart(self.sharding):
            exposed_s = predict(self.setting, self.plans).seconds["sync"]
            finish.append(StreamWork("outer exchange", scalar(exposed_s), SYNC))
        return tuple(each for each in finish if each.seconds > 0 or each.name == UPDATED)

    def _memory(self) -> tuple[tuple[float, ...], list[float]]:
        """Bytes that each rank holds throughout, and those that each kind of layer keeps of a micro batch."""
        usage = memory(self.setting, self.plans, self.stages, self.counts)
        flight = self.schedule.in_flight(
            self.plan.pipeline, self.micro_batches, self.plan.virtual_pipeline, 0
        )
        static = []
        for rank in range(self.plan.pipeline):
            parts = usage.breakdown(0, self.spread.classes[rank])
            if self.schedule.output_barriers:
                parts["workspace"] = 0.0  # logits are counted with their passes
            static.append(sum(size for name, size in parts.items() if name != "activations"))
        # Recomputed and embedding activations are spread over the first stage's layers.
        activations = usage.breakdown(0, FIRST)["activations"]
        kept_layers = kept_by_layers(self.setting, self.plans, self.stages.groups, self.counts.ops)
        sizes = [scalar(layer.between_passes) for layer in kept_layers]
        layers = self.stages.layers[FIRST, :, 0]
        share = activations / max(float(flight) * float(layers @ np.array(sizes)), 1.0)
        return tuple(static), [size * share for size in sizes]
