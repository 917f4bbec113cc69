"""The analytic time of a training step, over arrays of plans.

Layers are summed into pipeline stages, stages into a schedule's makespan, and what happens once a step
(gradient reduction, parameter gathering, optimizer) is added to it. Every part of the breakdown is seconds
of the step; they sum to the step time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.costs.data_parallel import DataParallel, each_micro_batch, once_a_step
from simulator.layout.stages import Parameters, Stages, parameters
from simulator.plan import Plans
from simulator.schedules import PipelineTimes, get_schedule
from simulator.setting import Setting
from simulator.training.ends import End, embedding_ops, embedding_passes, head_ops, head_passes
from simulator.training.layer import LAYER_FIELDS, Layer, Pass, layer_kinds, layer_ops, layer_passes
from simulator.training.work import price_passes

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
class Piece:
    """A layer or an end of the model, for one micro batch on one device; seconds, arrays of shape (plans,).

    ``parts`` and ``communication`` are those of both directions; ``count`` says how many of it each kind of
    stage has.
    """

    count: dict[str, np.ndarray]

    forward: np.ndarray
    backward: np.ndarray
    parts: dict[str, np.ndarray]
    communication: dict[str, np.ndarray]


@dataclass
class StagePass:
    """One micro batch on one kind of stage; seconds, shape (plans,).

    ``sharding`` is the communication of full sharding in it, ``sharding_exposed`` what of that nothing hides.
    """

    forward: np.ndarray
    backward: np.ndarray
    sharding_exposed: np.ndarray
    sharding: np.ndarray


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
    pieces = _pieces(setting, plans, stages)
    m = micro_batches(setting, plans)
    passes = {kind: _stage_pass(setting, plans, stages, counts, pieces, kind) for kind in KINDS}
    makespan, transfer_exposed, transfer_total = _pipeline(setting, plans, passes, m)

    present = {"first": True, "middle": plans.pipeline > 2, "last": plans.pipeline > 1}
    busy = np.stack(
        [np.where(present[kind], m * (passes[kind].forward + passes[kind].backward), 0.0) for kind in KINDS]
    )
    slowest = np.argmax(busy, axis=0)
    parts, communication = _breakdown(pieces, slowest, m)
    parts["launch"] = parts["launch"] + m * setting.framework.fetch_seconds
    data = _data_parallel(setting, plans, passes, counts, slowest)
    tied = tied_embedding(setting, plans)
    sharding_exposed = m * np.choose(slowest, [passes[kind].sharding_exposed for kind in KINDS])
    sharding = m * np.choose(slowest, [passes[kind].sharding for kind in KINDS])
    seconds = {
        **parts,
        "pipeline": transfer_exposed,
        "bubble": makespan - transfer_exposed - busy.max(axis=0),
        "gradients": data.gradients_exposed + tied,
        "parameters": data.parameters_exposed + sharding_exposed,
        "elementwise": parts["elementwise"] + data.gradient_kernels,
        "optimizer": data.optimizer,
    }
    communication |= {
        "gradients": data.gradients + tied,
        "parameters": data.parameters + sharding,
        "pipeline": transfer_total,
    }
    total = sum(seconds.values(), np.zeros(len(plans)))
    return Step(total, seconds, communication, stages, counts)


def _pieces(setting: Setting, plans: Plans, stages: Stages) -> list[Piece]:
    """What stages are made of: layers without and with experts, and both ends of the model."""
    unique, index = plans.unique(*LAYER_FIELDS)
    kinds = layer_kinds(setting)
    priced = price_passes(
        setting,
        embedding_ops(setting, unique),
        *head_ops(setting, unique),
        *(layer_ops(setting, unique, experts) for experts, _ in kinds),
    )
    pieces = []
    for ops, (experts, share) in zip(priced[3:], kinds, strict=True):
        each = layer_passes(setting, unique, ops, experts)
        count = {kind: share * getattr(stages, kind) for kind in KINDS}
        pieces.append(_piece(each, [each.recompute], count, index))
    alone, none = 1.0 * (plans.pipeline == 1), np.zeros(len(plans))
    for end, count in (
        (embedding_passes(setting, unique, priced[0]), {"first": 1 + none, "middle": none, "last": none}),
        (
            head_passes(setting, unique, priced[1], priced[2]),
            {"first": alone, "middle": none, "last": 1 - alone},
        ),
    ):
        pieces.append(_piece(end, [], count, index))
    return pieces


def _piece(
    each: Layer | End, recompute: list[Pass], count: dict[str, np.ndarray], index: np.ndarray
) -> Piece:
    """Sum the passes of those plans that differ, then take for each plan those that it has (``index``)."""
    forward, backward = [each.forward], [each.backward_input, each.backward_weight]
    none = np.zeros_like(each.forward.seconds)
    parts: dict[str, np.ndarray] = {}
    communication: dict[str, np.ndarray] = {}

    def put(into: dict[str, np.ndarray], name: str, seconds: np.ndarray) -> None:
        into[name] = into.get(name, none) + seconds

    for one in forward + backward:
        device, pace = one.device, one.setting.pace
        for kind, seconds in one.work.seconds.items():
            put(parts, kind, seconds)
        put(parts, "variation", device * (pace - 1))
        put(parts, "launch", one.kernels - device * pace)
    for one in recompute:
        put(parts, "recompute", one.kernels)
    for one in forward + backward + recompute:
        for name in ("tensor", "context", "expert"):
            transfer = getattr(one, name)
            put(parts, name, transfer.exposed)
            put(communication, name, transfer.total)

    def elapsed(passes: list[Pass]) -> np.ndarray:
        return sum((one.seconds for one in passes), none)[index]

    return Piece(
        count,
        elapsed(forward),
        elapsed(backward + recompute),
        {name: seconds[index] for name, seconds in parts.items()},
        {name: seconds[index] for name, seconds in communication.items()},
    )


def _breakdown(
    pieces: list[Piece], kind: np.ndarray, times: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Seconds of so many micro batches on one kind of stage (its index in ``KINDS``): by part, and of each
    communication."""
    parts: dict[str, np.ndarray] = {}
    communication: dict[str, np.ndarray] = {}
    for piece in pieces:
        weight = times * np.choose(kind, [piece.count[each] for each in KINDS])
        for into, seconds in ((parts, piece.parts), (communication, piece.communication)):
            for name, each in seconds.items():
                into[name] = into.get(name, 0.0) + weight * each
    return parts, communication


def _stage_pass(
    setting: Setting,
    plans: Plans,
    stages: Stages,
    counts: Parameters,
    pieces: list[Piece],
    kind: str,
) -> StagePass:
    """Time one micro batch on one kind of stage."""
    forward, backward, exposed, total = np.zeros((4, len(plans)))
    for piece in pieces:
        forward += piece.count[kind] * piece.forward
        backward += piece.count[kind] * piece.backward
    forward += setting.framework.fetch_seconds
    full = plans.zero == 3
    if np.any(full):
        some = plans.take(full)
        sharded = each_micro_batch(
            setting,
            some,
            np.maximum(np.ceil(getattr(stages, kind)[full]), 1),
            counts.dense[kind][full],
            counts.experts[kind][full],
            forward[full],
            backward[full],
            micro_batches(setting, some),
        )
        forward[full] += sharded.forward_exposed
        backward[full] += sharded.backward_exposed
        exposed[full] = sharded.forward_exposed + sharded.backward_exposed
        total[full] = sharded.forward + sharded.backward
    return StagePass(forward, backward, exposed, total)


def boundary_transfer(setting: Setting, plans: Plans) -> np.ndarray:
    """Seconds to send one boundary tensor to the next stage."""
    alike, which = plans.unique("tensor", "context", "data", "micro_batch", "sequence_parallel", "rank_order")
    tokens = setting.tokens(alike)
    size = tokens * setting.model.hidden * setting.width
    # With sequence parallelism a boundary tensor is already sharded over the tensor-parallel ranks; without
    # it each rank sends a slice and the receivers gather (Narayanan et al. 2021, section 4.1).
    transfer = setting.cluster.collective("send_receive", size / alike.tensor, 2, alike.pipeline_stride)
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
        # With their transfers, and without: both in one evaluation.
        twice = {key: np.concatenate((values, values)) for key, values in shape.items()}
        sent = np.concatenate((transfer[chosen], np.zeros(int(chosen.sum()))))
        both = get_schedule(name).makespan(PipelineTimes(**twice, transfer=sent))
        makespan[chosen], without[chosen] = np.split(both, 2)
    total = 2 * m * plans.virtual_pipeline * transfer
    # What more they delay are others' transfers while the pipeline fills: a bubble.
    return makespan, np.minimum(makespan - without, total), total


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
    apart = alike.pipeline_stride * (alike.pipeline - 1)
    seconds = setting.cluster.collective("all_reduce", size, 2, np.maximum(apart, 1))
    return np.where(alike.pipeline > 1, seconds, 0.0)[which]
