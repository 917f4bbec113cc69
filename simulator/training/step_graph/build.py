"""The step program of one plan, from the costs that the analytic prediction adds up too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.costs.data_parallel import BUCKET_PARAMETERS, DataParallel, move_state, once_a_step
from simulator.costs.overlap import contention
from simulator.engine.clock import Contention
from simulator.engine.graph import Stream
from simulator.engine.timeline import Timeline
from simulator.layout.stages import Stages, parameters
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT
from simulator.setting import Setting
from simulator.training import boundary_transfer, micro_batches, tied_embedding
from simulator.training.ends import embedding, head
from simulator.training.layer import Layer, layers
from simulator.training.memory import memory
from simulator.training.step_graph import run
from simulator.training.step_graph.loads import Load, Loads
from simulator.training.step_graph.output import output_work
from simulator.training.step_graph.passes import Passes, first_of, last_of, layers_by_position, one
from simulator.training.step_graph.ports import ports
from simulator.training.step_graph.step import Attached, ChunkWork, OutputWork, Pass, Segment, StepProgram
from simulator.training.step_graph.streams import (
    CONTEXT,
    DATA,
    EXPERT,
    GRADIENTS,
    NAMES,
    PARAMETERS,
    PIPELINE,
    RECOMPUTE,
    TENSOR,
)


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
    """What the parts of one program share; every array holds one plan."""

    def __init__(self, setting: Setting, plan: Plan) -> None:
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
        self.slow = contention(setting)
        self.layers = layers_by_position(
            setting.model.layers + setting.mtp_layers, self.stages, plan.pipeline, len(self.route)
        )
        self.loads = Loads(setting)
        self.kinds = self._kinds()
        self.ends = embedding(setting, self.plans), head(setting, self.plans)
        self.static, self.held_by_layer = self._memory()

    def _kinds(self) -> list[tuple[Layer, dict[str, dict[Stream, Load]], float]]:
        """Each kind of layer, what its communication asks of links by pass and stream, and its share."""
        known: dict[int, list[tuple[Layer, float]]] = {}

        def priced(setting: Setting) -> list[tuple[Layer, float]]:
            if id(setting) not in known:
                known[id(setting)] = layers(setting, self.plans)
            return known[id(setting)]

        def load(kind: int, name: str, stream: Stream) -> Load:
            return self.loads.of(
                lambda setting: getattr(getattr(priced(setting)[kind][0], name), stream.name).total
            )

        passes = "forward", "backward_input", "backward_weight", "recompute"
        return [
            (
                each,
                {name: {s: load(kind, name, s) for s in (TENSOR, CONTEXT, EXPERT)} for name in passes},
                share,
            )
            for kind, (each, share) in enumerate(priced(self.setting))
        ]

    def program(self) -> StepProgram:
        plan = self.plan
        shapes: dict[tuple[float, bool, bool, str], ChunkWork] = {}
        work = []
        for position, count in enumerate(self.layers):
            kind = self._kind(self.route[position][0])
            shape = count, position == 0, position == len(self.route) - 1, kind
            if shape not in shapes:
                shapes[shape] = self._chunk(*shape)
            work.append(shapes[shape])
        return StepProgram(
            schedule=self.schedule,
            stages=plan.pipeline,
            micro_batches=self.micro_batches,
            chunks=plan.virtual_pipeline,
            work=tuple(work),
            transfer=self.loads.segment("send", lambda each: boundary_transfer(each, self.plans), PIPELINE),
            blocking=not plan.overlap_pipeline,
            gather="pass" if plan.zero == 3 else "step",
            reduce="pass" if plan.zero >= 2 else "step",
            unit=self.unit,
            prefetch=self._prefetch(),
            overlap_gradients=plan.overlap_gradients,
            finish=self._finishes(),
            static=self.static,
            ports=ports(self.setting.cluster, plan.pipeline, self.stride),
            synchronous=not self.schedule.post_validation,
            output=self._output(),
            contention=Contention(1 / (1 - self.slow), 1.0),
        )

    def _prefetch(self) -> int:
        """Gathers ahead of use: one layer under full sharding, all of them where a step gathers once.

        Where micro batches share a gather, the next chunk's layers are gathered beside this one's passes.
        """
        if self.plan.zero < 3:
            return 10**9 if self.plan.overlap_parameters else 0
        large = self.counts.one_layer[0] > self.setting.framework.prefetch_parameters
        if large or not self.plan.overlap_parameters:
            return 0
        return int(max(self.layers)) if self.unit > 1 else 1

    # ---- passes ------------------------------------------------------------------------------------

    def _chunk(self, layers: float, first: bool, last: bool, kind: str) -> ChunkWork:
        """The passes of one position on a kind of stage; layers that are no whole number end with a part."""
        split = self.schedule.splits_backward
        front, back = self.ends
        shares = [1.0] * int(layers) + ([layers % 1] if layers % 1 > 1e-9 else [])
        forward, backward, weight = (Passes(NAMES[kind], self.slow) for kind in (FORWARD, BACKWARD, WEIGHT))
        reducing = weight if split else backward
        if not shares:  # an end of the model alone gathers and reduces like a layer
            for passes in (forward, backward, weight):
                passes.begin_layer()
        forward.wait("fetch", self.setting.framework.fetch_seconds / self.plan.virtual_pipeline)
        if first:
            forward.add("embedding", front.forward)
        for number, share in enumerate(shares):
            forward.begin_layer()
            for each, loads, part in self.kinds:
                forward.add(f"layer {number}", each.forward, share * part, loads["forward"])
        if last and not self.schedule.output_barriers:
            forward.add("output layer", back.forward)
            backward.add("output layer", back.backward_input)
            reducing.add("output layer", back.backward_weight)
        for number, share in reversed(list(enumerate(shares))):
            for passes in (backward, weight) if split else (backward,):
                passes.begin_layer()
            for each, loads, part in self.kinds:
                name, part = f"layer {number}", share * part
                backward.add(f"recompute {number}", each.recompute, part, loads["recompute"], RECOMPUTE)
                backward.add(name, each.backward_input, part, loads["backward_input"])
                reducing.add(name, each.backward_weight, part, loads["backward_weight"])
        if first:
            backward.add("embedding", front.backward_input)
        kept = self.held_by_layer * layers
        work = ChunkWork(
            forward=forward.done(),
            backward=backward.done(),
            weight=weight.done() if split else (),
            activation=kept,
            activation_for_weight=kept,
            offload=Segment("offload", one(self.setting.kernels.host_copy(kept)), size=kept, level="host"),
        )
        return self._attach(work, forward, backward, reducing, kind)

    def _attach(
        self, work: ChunkWork, forward: Passes, backward: Passes, reducing: Passes, kind: str
    ) -> ChunkWork:
        """Add the data-parallel collectives of this position."""
        if self.plan.data * self.plan.context == 1 or not forward.layers:
            return work
        share = self.schedule.copies * len(self.route) / self.plan.pipeline
        dense = float(self.counts.dense[kind][0]) / share
        experts = float(self.counts.experts[kind][0]) / share
        units = self._units(forward, dense + experts)
        gather, reduce = self._collectives(self.setting, dense, experts, units)
        gather_load, reduce_load = (
            self.loads.of(lambda each, which=which: self._collectives(each, dense, experts, units)[which])
            for which in (0, 1)
        )
        full = self.plan.zero == 3
        again = 2 if full and self.plan.recompute == "full" and self.setting.framework.gathers_again else 1
        unit_bytes = (dense + experts) / units * self.setting.framework.gather_bytes

        gathering = Segment("gather", gather, DATA, PARAMETERS, None, unit_bytes, *gather_load)
        reduction = Segment("reduce", reduce, DATA, GRADIENTS, None, unit_bytes, *reduce_load)

        def attached(places: list[int], segment: Segment) -> tuple[Attached, ...]:
            # The memory model counts gathered units as workspace, which is static here.
            return tuple(Attached(place, segment) for place in places)

        forward_gathers = backward_gathers = reductions = ()
        if full or (self.plan.zero > 0 and self.plan.overlap_parameters):
            forward_gathers = attached(first_of(forward.layers, units), gathering)
        if full:
            backward_gathers = attached(
                first_of(backward.layers, units), replace(gathering, seconds=again * gather)
            )
        if full or self.plan.overlap_gradients:
            reductions = attached(last_of(reducing, units), reduction)
        return replace(
            work,
            forward_gathers=forward_gathers,
            backward_gathers=backward_gathers,
            reductions=reductions,
        )

    def _units(self, forward: Passes, count: float) -> int:
        """Collectives that a position's parameters are cut into: layers, or buckets."""
        layers = len(forward.layers)
        if self.plan.zero == 3:
            return max(layers, 1)
        return int(np.clip(np.ceil(count / BUCKET_PARAMETERS), 1, layers))

    def _collectives(self, setting: Setting, dense: float, experts: float, units: int) -> tuple[float, float]:
        """Seconds of one gather and of one reduction, of so many that move these parameters."""
        calls = units * (setting.framework.gathers_a_layer if self.plan.zero == 3 else 1)
        gather, reduce = move_state(
            setting, self.plans, np.array([dense]), np.array([experts]), float(calls), float(units)
        )
        return float(gather[0]) / units, float(reduce[0]) / units

    def _output(self) -> OutputWork | None:
        barriers = self.schedule.output_barriers
        if not barriers:
            return None
        return output_work(self.setting, self.plan, barriers, self.stride, self.loads)

    # ---- once a step -------------------------------------------------------------------------------

    def _finishes(self) -> tuple[Pass, ...]:
        """The finish of each rank; those of one kind are alike."""
        by_kind: dict[str, Pass] = {}
        for rank in range(self.plan.pipeline):
            if self._kind(rank) not in by_kind:
                by_kind[self._kind(rank)] = self._finish(rank)
        return tuple(by_kind[self._kind(rank)] for rank in range(self.plan.pipeline))

    def _finish(self, rank: int) -> Pass:
        """Reductions that nothing hides, sums and copies of gradients, the optimizer, gathering of its
        results."""
        kind = self._kind(rank)
        dense, experts = self.counts.dense[kind], self.counts.experts[kind]
        plan, finish = self.plan, []

        def once(setting: Setting) -> DataParallel:
            window = np.zeros(1)
            micro_batches = np.array([self.micro_batches])
            return once_a_step(setting, self.plans, dense, experts, window, window, micro_batches)

        def add(name: str, price: Callable[[Setting], ArrayLike], part: str = GRADIENTS) -> None:
            finish.append(self.loads.segment(name, price, DATA, part))

        if plan.zero < 3 and not plan.overlap_gradients:
            add("reduce", lambda setting: once(setting).gradients)
        if rank in (0, plan.pipeline - 1) and not (self.schedule.returns or self.schedule.output_barriers):
            add("tied embedding", lambda setting: tied_embedding(setting, self.plans))
        if self.schedule.copies > 1:
            add("reduce replicas", lambda setting: self._reduce_replicas(setting, rank))
        alone = once(self.setting)
        finish.append(Segment("gradient elementwise", float(alone.gradient_kernels[0]), part="elementwise"))
        finish.append(Segment("optimizer", float(alone.optimizer[0]), part="optimizer"))
        if plan.zero in (1, 2) and not plan.overlap_parameters:
            add("gather", lambda setting: once(setting).parameters, PARAMETERS)
        return tuple(segment for segment in finish if segment.seconds > 0)

    def _reduce_replicas(self, setting: Setting, rank: int) -> float:
        """Seconds to sum the gradients of a stage over the ranks that hold it in the two directions."""
        size = one(self.counts.total(self._kind(rank))) * setting.framework.reduce_bytes
        return one(setting.cluster.collective("all_reduce", size, 2, self.stride))

    def _kind(self, rank: int) -> str:
        return "first" if rank == 0 else "last" if rank == self.plan.pipeline - 1 else "middle"

    def _memory(self) -> tuple[tuple[float, ...], float]:
        """Bytes that each rank holds throughout, and those that one layer keeps of one micro batch."""
        held = memory(self.setting, self.plans, self.stages, self.counts)
        flight = self.schedule.in_flight(
            self.plan.pipeline, self.micro_batches, self.plan.virtual_pipeline, 0
        )
        static = []
        for rank in range(self.plan.pipeline):
            parts = held.breakdown(0, self._kind(rank))
            if self.schedule.output_barriers:
                parts["workspace"] = 0.0  # logits are counted with their passes
            static.append(sum(size for name, size in parts.items() if name != "activations"))
        layers = one(self.stages.first)
        activations = held.breakdown(0, "first")["activations"]
        return tuple(static), activations / max(float(flight) * layers, 1.0)
