"""The analytic time of a training step, over arrays of plans.

Layers are summed into pipeline stages, stages into a schedule's makespan, and what happens once a step
(gradient reduction, parameter gathering, optimizer) is added to it. Every part of the breakdown is seconds
of the step; they sum to the step time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from hwmodels.collectives.cost import Cost
from simulator.layout.stages import Parameters, Stages, parameters
from simulator.plan import Plans
from simulator.schedules import PipelineTimes, get_schedule
from simulator.setting import Setting
from simulator.training.data_parallel import InEachPass, OnceAStep, exposed_once, once_a_step
from simulator.training.ends import End, embedding_ops, embedding_passes, head_ops, head_passes
from simulator.training.layer import LAYER_FIELDS, Layer, Pass, layer_kinds, layer_ops, layer_passes
from simulator.training.overlap import contention
from simulator.training.sharding import Sharding
from simulator.training.work import price_passes

NOTHING = Cost.none()
KINDS = ("first", "middle", "last")


@dataclass
class Step:
    """The predicted step of each plan.

    ``seconds`` maps each part of the breakdown to seconds of the step, shape (plans,); ``communication``
    maps each kind of communication to all the seconds it takes, hidden or not; ``sent`` to its cost on the
    slowest stage (empty where the event engine timed the step).
    """

    time: np.ndarray
    seconds: dict[str, np.ndarray]
    communication: dict[str, np.ndarray]
    stages: Stages
    parameters: Parameters
    sent: dict[str, Cost] = field(default_factory=dict)

    def share(self, *parts: str) -> np.ndarray:
        """Share of the step that the named parts take together."""
        return sum((self.seconds[p] for p in parts), np.zeros(len(self.time))) / self.time


@dataclass
class Piece:
    """A layer or an end of the model, for one micro batch on one device; seconds, arrays of shape (plans,).

    ``parts`` and ``sent`` (communication by kind) are those of both directions; ``count`` is how many of it
    each kind of stage has.
    """

    count: dict[str, np.ndarray]

    forward: np.ndarray
    backward: np.ndarray
    parts: dict[str, np.ndarray]
    sent: dict[str, Cost]


@dataclass
class StagePass:
    """One micro batch on one kind of stage; seconds, shape (plans,).

    ``sharding`` is the communication of sharded parameters in it, ``sharding_exposed`` the visible part.
    """

    forward: np.ndarray
    backward: np.ndarray
    sharding_exposed: np.ndarray
    sharding: Cost


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
    makespan, transfer_exposed, transfers = _pipeline(setting, plans, passes, m)

    present = {"first": True, "middle": plans.pipeline > 2, "last": plans.pipeline > 1}
    busy = np.stack(
        [np.where(present[kind], m * (passes[kind].forward + passes[kind].backward), 0.0) for kind in KINDS]
    )
    slowest = np.argmax(busy, axis=0)
    parts, sent = _breakdown(pieces, slowest, m)
    parts["launch"] = parts["launch"] + m * setting.framework.fetch_seconds
    data, gradients_exposed, parameters_exposed = _data_parallel(setting, plans, passes, counts, slowest)
    tied = tied_embedding(setting, plans)
    sharding_exposed = m * np.choose(slowest, [passes[kind].sharding_exposed for kind in KINDS])
    sharding = sum((passes[kind].sharding * (slowest == row) for row, kind in enumerate(KINDS)), NOTHING)
    seconds = {
        **parts,
        "pipeline": transfer_exposed,
        "bubble": makespan - transfer_exposed - busy.max(axis=0),
        "gradients": gradients_exposed + tied.seconds,
        "parameters": parameters_exposed + sharding_exposed,
        "elementwise": parts["elementwise"] + data.gradient_kernels,
        "optimizer": data.optimizer,
    }
    sent |= {
        "gradients": data.reduce.cost * data.reductions + tied,
        "parameters": data.gather.cost + sharding * m,
        "pipeline": transfers,
    }
    total = sum(seconds.values(), np.zeros(len(plans)))
    communication = {kind: cost.seconds for kind, cost in sent.items()}
    return Step(total, seconds, communication, stages, counts, sent)


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
    sent: dict[str, Cost] = {}

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
            sent[name] = sent.get(name, NOTHING) + transfer.cost

    def elapsed(passes: list[Pass]) -> np.ndarray:
        return sum((one.seconds for one in passes), none)[index]

    return Piece(
        count,
        elapsed(forward),
        elapsed(backward + recompute),
        {name: seconds[index] for name, seconds in parts.items()},
        {name: cost[index] for name, cost in sent.items()},
    )


def _breakdown(
    pieces: list[Piece], kind: np.ndarray, times: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, Cost]]:
    """Micro batches on one kind of stage (its index in ``KINDS``): seconds by part, and communication."""
    parts: dict[str, np.ndarray] = {}
    sent: dict[str, Cost] = {}
    for piece in pieces:
        weight = times * np.choose(kind, [piece.count[each] for each in KINDS])
        for name, seconds in piece.parts.items():
            parts[name] = parts.get(name, 0.0) + weight * seconds
        for name, cost in piece.sent.items():
            sent[name] = sent.get(name, NOTHING) + weight * cost
    return parts, sent


def _stage_pass(
    setting: Setting,
    plans: Plans,
    stages: Stages,
    counts: Parameters,
    pieces: list[Piece],
    kind: str,
) -> StagePass:
    """Time one micro batch on one kind of stage."""
    forward, backward, exposed = np.zeros((3, len(plans)))
    for piece in pieces:
        forward += piece.count[kind] * piece.forward
        backward += piece.count[kind] * piece.backward
    forward += setting.framework.fetch_seconds
    sharded = Sharding(setting, plans).parameters
    if not np.any(sharded):
        return StagePass(forward, backward, exposed, Cost.none((len(plans),)))
    some = plans.take(sharded)
    exchanges = InEachPass.of(
        Sharding(setting, some),
        np.maximum(np.ceil(getattr(stages, kind)[sharded]), 1),
        counts.dense[kind][sharded],
        counts.experts[kind][sharded],
        micro_batches(setting, some),
    )
    shown = exchanges.exposed(forward[sharded], backward[sharded], contention(setting))
    forward[sharded] += shown[0]
    backward[sharded] += shown[1]
    exposed[sharded] = shown[0] + shown[1]
    place = np.maximum(np.cumsum(sharded) - 1, 0)
    return StagePass(forward, backward, exposed, exchanges.cost[place] * sharded)


def boundary_transfer(setting: Setting, plans: Plans) -> Cost:
    """Cost of sending one boundary tensor to the next stage, shape (plans,)."""
    alike, which = plans.unique("tensor", "context", "data", "micro_batch", "sequence_parallel", "rank_order")
    tokens = setting.tokens(alike)
    size = tokens * setting.model.hidden * setting.width
    # With sequence parallelism a boundary tensor is already sharded over the tensor-parallel ranks; without
    # it each rank sends a slice and the receivers gather (Narayanan et al. 2021, section 4.1).
    cluster, stride = setting.cluster, alike.pipeline_stride
    transfer = cluster.collective_cost("send_receive", size / alike.tensor, 2, stride)
    gather = cluster.collective_cost("all_gather", size, alike.tensor, 1)
    cost = (transfer + gather * (alike.sequence_parallel == 0))[which]
    return replace(cost, seconds=cost.seconds + setting.framework.exchange_seconds)


def _pipeline(
    setting: Setting, plans: Plans, passes: dict[str, StagePass], m: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Cost]:
    """Makespan of the pipeline, the share of it that transfers cause, and the cost of all transfers."""
    cost = boundary_transfer(setting, plans) * (plans.pipeline > 1)
    transfer = cost.seconds
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
    transfers = cost * (2 * m * plans.virtual_pipeline)
    # What more they delay are others' transfers while the pipeline fills: a bubble.
    return makespan, np.minimum(makespan - without, transfers.seconds), transfers


def _data_parallel(
    setting: Setting, plans: Plans, passes: dict[str, StagePass], counts: Parameters, slowest: np.ndarray
) -> tuple[OnceAStep, np.ndarray, np.ndarray]:
    """Once-a-step work of the stage that holds the most parameters, and the seconds of its reductions and of
    its gathering that stay visible."""
    total = np.stack([counts.total(kind) for kind in KINDS])
    largest = np.argmax(total, axis=0)
    dense = np.choose(largest, [counts.dense[kind] for kind in KINDS])
    experts = np.choose(largest, [counts.experts[kind] for kind in KINDS])
    backward = np.choose(slowest, [passes[kind].backward for kind in KINDS])
    forward = np.choose(slowest, [passes[kind].forward for kind in KINDS])
    m, sharding = micro_batches(setting, plans), Sharding(setting, plans)
    # Reductions in every pass have that pass only to run beside.
    window = np.where(sharding.gradients, 1.0, _window(plans, m))
    step = once_a_step(sharding, dense, experts, m)
    gradients = step.reductions * exposed_once(sharding, step.reduce, backward, window)
    return step, gradients, exposed_once(sharding, step.gather, forward, window)


def _window(plans: Plans, m: np.ndarray) -> np.ndarray:
    """Micro-batch passes of one rank beside which a schedule lets it reduce or gather."""
    passes = np.ones(len(plans))
    for index, name in enumerate(plans.schedule_names):
        chosen = plans.schedule == index
        shape = plans.pipeline[chosen], m[chosen], plans.virtual_pipeline[chosen]
        passes[chosen] = get_schedule(name).window(*shape)
    return passes


def tied_embedding(setting: Setting, plans: Plans) -> Cost:
    """All-reduce of the tied embedding's gradient between the first and the last stage, shape (plans,)."""
    if not setting.model.tied_embeddings:
        return Cost.none((len(plans),))
    alike, which = plans.unique("tensor", "context", "data", "pipeline", "rank_order")
    size = setting.model.hidden * setting.model.vocabulary / alike.tensor * setting.framework.reduce_bytes
    apart = alike.pipeline_stride * (alike.pipeline - 1)
    cost = setting.cluster.collective_cost("all_reduce", size, 2, np.maximum(apart, 1))
    return (cost * (alike.pipeline > 1))[which]
