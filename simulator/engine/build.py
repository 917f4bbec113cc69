"""The step program of one plan, from the costs that the analytic prediction adds up too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.costs.data_parallel import BUCKET_PARAMETERS, move_state, once_a_step
from simulator.costs.ends import embedding, head
from simulator.costs.layer import layer
from simulator.costs.overlap import contention
from simulator.costs.setting import Setting
from simulator.costs.stages import Stages, parameters
from simulator.engine import run
from simulator.engine.clock import Contention
from simulator.engine.graph import COMPUTE, DATA, PIPELINE
from simulator.engine.output import output_work
from simulator.engine.passes import Passes, first_of, last_of, layers_by_position, one
from simulator.engine.rank import NAMES
from simulator.engine.step import Attached, ChunkWork, OutputWork, Pass, Segment, StepProgram
from simulator.engine.timeline import Timeline
from simulator.memory import memory
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT
from simulator.training import boundary_transfer, micro_batches, tied_embedding


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
        self.schedule = get_schedule(plan.schedule)
        self.micro_batches = int(micro_batches(setting, self.plans)[0])
        self.schedule.check(plan.pipeline, self.micro_batches, plan.virtual_pipeline)
        self.stages = Stages.of(setting, self.plans)
        self.counts = parameters(setting, self.plans, self.stages)
        self.unit = int(self.schedule.gathered_together(plan.pipeline, self.micro_batches))
        self.route = self.schedule.routes(plan.pipeline, plan.virtual_pipeline)[0]
        self.slow = contention(setting)
        self.layers = layers_by_position(setting.model.layers, self.stages, plan.pipeline, len(self.route))
        share = setting.model.moe_layers / setting.model.layers
        self.kinds = [
            (layer(setting, self.plans, experts), part)
            for experts, part in ((False, 1 - share), (True, share))
            if part > 0
        ]
        self.ends = embedding(setting, self.plans), head(setting, self.plans)
        self.static, self.held_by_layer = self._memory()

    def program(self) -> StepProgram:
        plan, setting = self.plan, self.setting
        shapes: dict[tuple[float, bool, bool, str], ChunkWork] = {}
        work = []
        for position, layers in enumerate(self.layers):
            kind = self._kind(self.route[position][0])
            shape = layers, position == 0, position == len(self.route) - 1, kind
            if shape not in shapes:
                shapes[shape] = self._chunk(*shape)
            work.append(shapes[shape])
        return StepProgram(
            schedule=self.schedule,
            stages=plan.pipeline,
            micro_batches=self.micro_batches,
            chunks=plan.virtual_pipeline,
            work=tuple(work),
            transfer=Segment("send", float(boundary_transfer(setting, self.plans)[0]), PIPELINE),
            blocking=not plan.overlap_pipeline,
            gather="pass" if plan.zero == 3 else "step",
            reduce="pass" if plan.zero >= 2 else "step",
            unit=self.unit,
            prefetch=self._prefetch(),
            finish=tuple(self._finish(rank) for rank in range(plan.pipeline)),
            static=self.static,
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
        framework = self.setting.framework
        wrapped = float(self.counts.one_layer[0]) * framework.wrapped_layers
        if not self.plan.overlap_parameters or wrapped > framework.prefetch_parameters:
            return 0
        return -(-int(max(self.layers)) // framework.wrapped_layers) if self.unit > 1 else 1

    # ---- passes ------------------------------------------------------------------------------------

    def _chunk(self, layers: float, first: bool, last: bool, kind: str) -> ChunkWork:
        """The passes of one position on a kind of stage; layers that are no whole number end with a part."""
        split = self.schedule.splits_backward
        front, back = self.ends
        shares = [1.0] * int(layers) + ([layers % 1] if layers % 1 > 1e-9 else [])
        forward, backward, weight = (Passes(NAMES[kind], self.slow) for kind in (FORWARD, BACKWARD, WEIGHT))
        reducing = weight if split else backward
        forward.wait("fetch", self.setting.framework.fetch_seconds / self.plan.virtual_pipeline)
        if first:
            forward.add("embedding", front.forward)
        for number, share in enumerate(shares):
            forward.begin_layer()
            for each, part in self.kinds:
                forward.add(f"layer {number}", each.forward, share * part)
        if last and not self.schedule.output_barriers:
            forward.add("output layer", back.forward)
            backward.add("output layer", back.backward_input)
            reducing.add("output layer", back.backward_weight)
        for number, share in reversed(list(enumerate(shares))):
            for passes in (backward, weight) if split else (backward,):
                passes.begin_layer()
            for each, part in self.kinds:
                backward.add(f"recompute {number}", each.recompute, share * part)
                backward.add(f"layer {number}", each.backward_input, share * part)
                reducing.add(f"layer {number}", each.backward_weight, share * part)
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
        gather, reduce = self._collectives(dense, experts, units)
        full = self.plan.zero == 3
        late = 0.0
        if full and self.plan.overlap_parameters:
            late = gather * (1 - self.setting.framework.gather_overlap)
        again = 2 if full and self.plan.recompute == "full" and self.setting.framework.gathers_again else 1
        unit_bytes = (dense + experts) / units * self.setting.framework.gather_bytes

        def attached(places: list[int], name: str, seconds: float, late: float = 0.0) -> tuple[Attached, ...]:
            segment = Segment(name, seconds - late, DATA, size=unit_bytes, level="data parallel")
            # The memory model counts gathered units as workspace, which is static here.
            return tuple(Attached(place, segment, late=late) for place in places)

        forward_gathers = backward_gathers = reductions = ()
        if full or (self.plan.zero > 0 and self.plan.overlap_parameters):
            forward_gathers = attached(first_of(forward.layers, units), "gather", gather, late)
        if full:
            backward_gathers = attached(
                first_of(backward.layers, units), "gather", again * gather, again * late
            )
        if full or self.plan.overlap_gradients:
            reductions = attached(last_of(reducing, units), "reduce", reduce)
        return replace(
            work,
            forward_gathers=forward_gathers,
            backward_gathers=backward_gathers,
            reductions=reductions,
        )

    def _units(self, forward: Passes, count: float) -> int:
        """Collectives that a position's parameters are cut into: wrapped layers, or buckets."""
        layers = len(forward.layers)
        if self.plan.zero == 3:
            return max(-(-layers // self.setting.framework.wrapped_layers), 1)
        return int(np.clip(np.ceil(count / BUCKET_PARAMETERS), 1, layers))

    def _collectives(self, dense: float, experts: float, units: int) -> tuple[float, float]:
        """Seconds of one gather and of one reduction, of so many that move these parameters."""
        calls = units * (self.setting.framework.gathers_a_layer if self.plan.zero == 3 else 1)
        gather, reduce = move_state(
            self.setting, self.plans, np.array([dense]), np.array([experts]), float(calls), float(units)
        )
        return float(gather[0]) / units, float(reduce[0]) / units

    def _output(self) -> OutputWork | None:
        barriers = self.schedule.output_barriers
        return output_work(self.setting, self.plan, barriers, self._pipeline_stride()) if barriers else None

    # ---- once a step -------------------------------------------------------------------------------

    def _finish(self, rank: int) -> Pass:
        """Reductions that nothing hides, the optimizer, gathering of what it wrote, host time."""
        kind = self._kind(rank)
        dense, experts = self.counts.dense[kind], self.counts.experts[kind]
        window = np.zeros(1)
        once = once_a_step(
            self.setting, self.plans, dense, experts, window, window, np.array([self.micro_batches])
        )
        plan, finish = self.plan, []
        if plan.zero < 3 and not plan.overlap_gradients:
            finish.append(Segment("reduce", float(once.gradients[0]), DATA))
        if rank in (0, plan.pipeline - 1) and not (self.schedule.returns or self.schedule.output_barriers):
            finish.append(Segment("tied embedding", float(tied_embedding(self.setting, self.plans)[0]), DATA))
        if self.schedule.copies > 1:
            finish.append(Segment("reduce replicas", self._reduce_replicas(rank), DATA))
        finish.append(Segment("optimizer", float(once.optimizer[0])))
        if plan.zero in (1, 2) and not plan.overlap_parameters:
            finish.append(Segment("gather", float(once.parameters[0]), DATA))
        finish.append(Segment("host", self.setting.framework.step_overhead_seconds, COMPUTE))
        return tuple(segment for segment in finish if segment.seconds > 0)

    def _reduce_replicas(self, rank: int) -> float:
        """Seconds to sum the gradients of a stage over the ranks that hold it in the two directions."""
        size = one(self.counts.total(self._kind(rank))) * self.setting.framework.reduce_bytes
        return one(self.setting.cluster.collective("all_reduce", size, 2, self._pipeline_stride()))

    def _pipeline_stride(self) -> int:
        """Devices between neighbouring pipeline ranks."""
        plan = self.plan
        inner = plan.tensor * plan.context
        return inner if plan.rank_order == "tensor-context-pipeline-data" else inner * plan.data

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
