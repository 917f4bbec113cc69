"""The analytic time of a training step, over arrays of plans.

Layers are summed into pipeline stages, stages into a schedule's makespan, and what happens once a step
(gradient reduction, parameter gathering, optimizer) is added to it. Every part of the breakdown is seconds
of the step; they sum to the step time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.data_parallel import DataParallel, Sharded, each_micro_batch, once_a_step
from simulator.costs.ends import END_FIELDS, End, embedding, head
from simulator.costs.layer import LAYER_FIELDS, Layer, Pass, layer
from simulator.costs.setting import Setting
from simulator.costs.stages import Parameters, Stages, parameters
from simulator.plan import Plans
from simulator.schedules import PipelineTimes, get_schedule

KINDS = ("first", "middle", "last")


@dataclass
class Step:
    """The predicted step of each plan.

    ``seconds`` maps each part of the breakdown to seconds of the step, shape (plans,); ``communication``
    maps each kind of communication to all the seconds it takes, hidden or not.
    """

    time: np.ndarray
    seconds: dict[str, np.ndarray]
    communication: dict[str, np.ndarray]
    stages: Stages
    parameters: Parameters

    def share(self, *parts: str) -> np.ndarray:
        """Share of the step that the named parts take together."""
        return sum((self.seconds[p] for p in parts), np.zeros(len(self.time))) / self.time


@dataclass
class StagePass:
    """Forward and backward of one micro batch on one kind of stage, with their parts in seconds."""

    forward: np.ndarray
    backward: np.ndarray
    parts: dict[str, np.ndarray]
    communication: dict[str, np.ndarray]


def micro_batches(setting: Setting, plans: Plans) -> np.ndarray:
    """Micro batches of one replica in a step; callers make sure that the batch divides."""
    return setting.training.global_batch / (plans.data * plans.micro_batch)


def predict(setting: Setting, plans: Plans) -> Step:
    """Predict the step time of each plan.

    Returns:
        Times and breakdown in seconds, shape (plans,).
    """
    stages = Stages.of(setting, plans)
    counts = parameters(setting, plans, stages)
    passes = _stage_passes(setting, plans, stages, counts)
    m = micro_batches(setting, plans)
    makespan, transfer_exposed, transfer_total = _pipeline(setting, plans, passes, m)

    present = {"first": True, "middle": plans.pipeline > 2, "last": plans.pipeline > 1}
    busy = {
        kind: np.where(present[kind], m * (passes[kind].forward + passes[kind].backward), 0.0)
        for kind in KINDS
    }
    slowest = _slowest(busy)
    parts = _pick(slowest, {kind: {k: m * v for k, v in passes[kind].parts.items()} for kind in KINDS})
    communication = _pick(
        slowest, {kind: {k: m * v for k, v in passes[kind].communication.items()} for kind in KINDS}
    )
    largest = np.maximum.reduce(list(busy.values()))

    data = _data_parallel(setting, plans, passes, counts, slowest)
    tied = tied_embedding(setting, plans)
    seconds = {
        **parts,
        "pipeline": transfer_exposed,
        "bubble": makespan - transfer_exposed - largest,
        "gradients": data.gradients_exposed + tied,
        "parameters": data.parameters_exposed,
        "elementwise": parts["elementwise"] + data.gradient_kernels,
        "optimizer": data.optimizer,
        "host": np.full(len(plans), setting.framework.step_overhead_seconds),
    }
    for name, extra in (
        ("gradients", data.gradients + tied),
        ("parameters", data.parameters),
        ("pipeline", transfer_total),
    ):
        communication[name] = communication.get(name, 0.0) + extra
    if "sharding" in parts:
        seconds["parameters"] = seconds["parameters"] + seconds.pop("sharding")
        communication["parameters"] = communication["parameters"] + communication.pop("sharding")
    total = sum(seconds.values(), np.zeros(len(plans)))
    return Step(total, seconds, communication, stages, counts)


def _slowest(busy: dict[str, np.ndarray]) -> np.ndarray:
    return np.argmax(np.stack([busy[kind] for kind in KINDS]), axis=0)


def _pick(choice: np.ndarray, by_kind: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    names = dict.fromkeys(name for kind in KINDS for name in by_kind[kind])
    zero = np.zeros(len(choice))
    return {
        name: np.choose(choice, [by_kind[kind].get(name, zero) + zero for kind in KINDS]) for name in names
    }


def _stage_passes(setting: Setting, plans: Plans, stages: Stages, counts: Parameters) -> dict[str, StagePass]:
    """Time one micro batch on the first, a middle and the last stage."""
    model = setting.model
    unique, inverse = plans.unique(*LAYER_FIELDS)
    share = model.moe_layers / model.layers
    layers = []
    if share < 1:
        layers.append((layer(setting, unique, experts=False), 1 - share))
    if share > 0:
        layers.append((layer(setting, unique, experts=True), share))
    ends, ends_inverse = plans.unique(*END_FIELDS)
    first_end, last_end = embedding(setting, ends), head(setting, ends)
    alone = plans.pipeline == 1
    on_stage = {
        "first": (stages.first, [(first_end, np.ones(len(plans))), (last_end, alone * 1.0)]),
        "middle": (stages.middle, []),
        "last": (stages.last, [(last_end, ~alone * 1.0)]),
    }
    result = {}
    for kind, (count, end_list) in on_stage.items():
        stage = _Sum(len(plans))
        for each, fraction in layers:
            stage.add_layer(each, inverse, count * fraction)
        for end, weight in end_list:
            stage.add_end(end, ends_inverse, weight)
        stage.add_fetch(setting.framework.fetch_seconds)
        result[kind] = stage.result()
    if np.any(plans.zero == 3):
        for kind, (count, _) in on_stage.items():
            _shard(setting, plans, result[kind], count, counts, kind)
    return result


class _Sum:
    """Adds passes of layers and ends up to one stage."""

    def __init__(self, plans: int) -> None:
        self.forward, self.backward = np.zeros(plans), np.zeros(plans)
        self.parts: dict[str, np.ndarray] = {}
        self.communication: dict[str, np.ndarray] = {}

    def _add(self, each: Pass, index: np.ndarray, weight: np.ndarray, recompute: bool = False) -> np.ndarray:
        elapsed = each.seconds[index] * weight
        if recompute:
            self._put(
                self.parts, "recompute", np.broadcast_to(each.kernels, each.seconds.shape)[index] * weight
            )
        else:
            pace = each.setting.pace
            for kind, seconds in each.work.seconds.items():
                self._put(self.parts, kind, np.broadcast_to(seconds, each.seconds.shape)[index] * weight)
            device = np.broadcast_to(each.work.device, each.seconds.shape)
            self._put(self.parts, "variation", (device * (pace - 1))[index] * weight)
            self._put(self.parts, "launch", (each.kernels - device * pace)[index] * weight)
        for name in ("tensor", "context", "expert"):
            transfer = getattr(each, name)
            self._put(self.parts, name, transfer.exposed[index] * weight)
            self._put(self.communication, name, transfer.total[index] * weight)
        return elapsed

    @staticmethod
    def _put(into: dict[str, np.ndarray], name: str, seconds: np.ndarray) -> None:
        into[name] = into.get(name, 0.0) + seconds

    def add_layer(self, each: Layer, index: np.ndarray, weight: np.ndarray) -> None:
        self.forward += self._add(each.forward, index, weight)
        self.backward += self._add(each.backward_input, index, weight)
        self.backward += self._add(each.backward_weight, index, weight)
        self.backward += self._add(each.recompute, index, weight, recompute=True)

    def add_end(self, end: End, index: np.ndarray, weight: np.ndarray) -> None:
        self.forward += self._add(end.forward, index, weight)
        self.backward += self._add(end.backward_input, index, weight)
        self.backward += self._add(end.backward_weight, index, weight)

    def add_fetch(self, seconds: float) -> None:
        self.forward += seconds
        self._put(self.parts, "launch", np.full(len(self.forward), seconds))

    def result(self) -> StagePass:
        return StagePass(self.forward, self.backward, self.parts, self.communication)


def _shard(
    setting: Setting, plans: Plans, stage: StagePass, layers: np.ndarray, counts: Parameters, kind: str
) -> None:
    """Add the gathers and reductions of full sharding to the passes of one stage."""
    units = np.maximum(np.ceil(layers / setting.framework.wrapped_layers), 1)
    sharded: Sharded = each_micro_batch(
        setting,
        plans,
        units,
        counts.dense[kind],
        counts.experts[kind],
        stage.forward,
        stage.backward,
        micro_batches(setting, plans),
    )
    full = plans.zero == 3
    stage.forward = stage.forward + np.where(full, sharded.forward_exposed, 0.0)
    stage.backward = stage.backward + np.where(full, sharded.backward_exposed, 0.0)
    stage.parts["sharding"] = np.where(full, sharded.forward_exposed + sharded.backward_exposed, 0.0)
    stage.communication["sharding"] = np.where(full, sharded.forward + sharded.backward, 0.0)


def boundary_transfer(setting: Setting, plans: Plans) -> np.ndarray:
    """Seconds to send one boundary tensor to the next stage."""
    alike, which = plans.unique("tensor", "context", "data", "micro_batch", "sequence_parallel", "rank_order")
    tokens = alike.micro_batch * setting.training.seq_len / alike.context
    size = tokens * setting.model.hidden * setting.width
    stride = alike.tensor * alike.context * np.where(alike.rank_order == 1, 1, alike.data)
    # With sequence parallelism a boundary tensor is already sharded over the tensor-parallel ranks; without
    # it each rank sends a slice and the receivers gather (Narayanan et al. 2021, section 4.1).
    transfer = setting.cluster.collective("send_receive", size / alike.tensor, 2, stride)
    gather = setting.cluster.collective("all_gather", size, alike.tensor, 1)
    seconds = transfer + np.where(alike.sequence_parallel, 0.0, gather)
    return seconds[which] + setting.framework.exchange_seconds


def _pipeline(
    setting: Setting, plans: Plans, passes: dict[str, StagePass], m: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Makespan of the pipeline, the share of it that transfers cause, and all seconds of transfers."""
    transfer = np.where(plans.pipeline > 1, boundary_transfer(setting, plans), 0.0)
    makespan, without = np.zeros(len(plans)), np.zeros(len(plans))
    for index, name in enumerate(plans.schedule_names):
        chosen = plans.schedule == index
        if not np.any(chosen):
            continue
        shape = {f"forward_{k}": passes[k].forward[chosen] for k in KINDS}
        shape |= {f"backward_{k}": passes[k].backward[chosen] for k in KINDS}
        shape |= {
            "stages": plans.pipeline[chosen],
            "micro_batches": m[chosen],
            "chunks": plans.virtual_pipeline[chosen],
        }
        shape |= {"overlap_transfer": plans.overlap_pipeline[chosen].astype(bool)}
        schedule = get_schedule(name)
        makespan[chosen] = schedule.makespan(PipelineTimes(**shape, transfer=transfer[chosen]))
        without[chosen] = schedule.makespan(PipelineTimes(**shape, transfer=np.zeros(int(chosen.sum()))))
    crossings = 2 * m * plans.virtual_pipeline
    return makespan, makespan - without, crossings * transfer


def _data_parallel(
    setting: Setting, plans: Plans, passes: dict[str, StagePass], counts: Parameters, slowest: np.ndarray
) -> DataParallel:
    """Once-a-step work of the stage that holds the most parameters."""
    total = np.stack([counts.total(kind) for kind in KINDS])
    largest = np.argmax(total, axis=0)
    full = plans.zero == 3
    dense = np.choose(largest, [counts.dense[kind] for kind in KINDS])
    experts = np.choose(largest, [counts.experts[kind] for kind in KINDS])
    backward = np.choose(slowest, [passes[kind].backward for kind in KINDS])
    forward = np.choose(slowest, [passes[kind].forward for kind in KINDS])
    m = micro_batches(setting, plans)
    window = np.where(plans.zero == 2, 1.0, _window(plans, m))
    result = once_a_step(setting, plans, dense, experts, backward, forward, m, window)
    for name in ("gradients", "parameters", "gradients_exposed", "parameters_exposed"):
        setattr(result, name, np.where(full, 0.0, getattr(result, name)))
    return result


def _window(plans: Plans, m: np.ndarray) -> np.ndarray:
    """Micro-batch passes of one rank beside which a schedule lets it reduce or gather."""
    passes = np.ones(len(plans))
    for index, name in enumerate(plans.schedule_names):
        chosen = plans.schedule == index
        shape = plans.pipeline[chosen], m[chosen], plans.virtual_pipeline[chosen]
        passes[chosen] = get_schedule(name).window(*shape)
    return passes


def tied_embedding(setting: Setting, plans: Plans) -> np.ndarray:
    """All-reduce of the tied embedding's gradient between the first and the last stage."""
    if not setting.model.tied_embeddings:
        return np.zeros(len(plans))
    alike, which = plans.unique("tensor", "context", "data", "pipeline", "rank_order")
    size = setting.model.hidden * setting.model.vocabulary / alike.tensor * setting.framework.reduce_bytes
    apart = (
        alike.tensor * alike.context * np.where(alike.rank_order == 1, 1, alike.data) * (alike.pipeline - 1)
    )
    seconds = setting.cluster.collective("all_reduce", size, 2, np.maximum(apart, 1))
    return np.where(alike.pipeline > 1, seconds, 0.0)[which]
