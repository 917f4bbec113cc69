"""The analytic time of a training step, over arrays of plans.

Layers add up to pipeline stages, stages to a schedule's makespan; gradient reduction, parameter gathering and
the optimizer follow once a step. Every part of the breakdown is seconds of the step; they sum to the step
time.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from core.records import record
from hwmodels.collectives.cost import Cost
from simulator.layout.parameters import Parameters, parameters
from simulator.layout.stages import FIRST, LAST, Stages, first_largest, of_class
from simulator.plan import Plans, put, taken
from simulator.schedules import PipelineTimes, get_schedule
from simulator.schedules.bound import makespan_of
from simulator.setting import Setting
from simulator.training.boundary import boundary_transfer, tied_embedding
from simulator.training.combined import in_fixed_shares
from simulator.training.components import Component, KnownStep, components, known_components
from simulator.training.counts import micro_batches
from simulator.training.data_parallel import (
    InEachPass,
    OnceAStep,
    Passes,
    exposed_once,
    host_waits,
    once_a_step,
)
from simulator.training.outer import outer_seconds, synchronised_apart
from simulator.training.placement_shares import placed
from simulator.training.sharding import Sharding
from simulator.training.tiers import copied_exposed, update_exposed
from simulator.training.unequal import uneven


@record()
class Step:
    """The predicted step of each plan.

    ``seconds`` maps each part of the breakdown to seconds of the step, shape (plans,); ``communication`` maps
    each kind of communication to its seconds, hidden or not; ``sent`` to its cost on the slowest stage (empty
    where the event engine timed the step).
    """

    time: np.ndarray
    seconds: dict[str, np.ndarray]
    communication: dict[str, np.ndarray]
    stages: Stages
    parameters: Parameters
    sent: dict[str, Cost] = field(default_factory=dict)
    backward: np.ndarray | None = None
    """Seconds of a backward pass of one micro batch on the slowest stage, shape (plans,)."""

    def share(self, *parts: str) -> np.ndarray:
        """Summed share of the named parts in the step."""
        return sum((self.seconds[p] for p in parts), np.zeros(len(self.time))) / self.time


@record()
class StageTimes:
    """One micro batch on each class of stage; seconds, shape (classes, plans).

    ``forward_ends`` and ``backward_ends`` are those of the model's first and last position beyond the other
    chunks of their stages, shape (2, plans). ``exchanges`` is the communication of sharded parameters of the
    plans that shard them (``sharded``), ``sharding_exposed`` its exposed seconds, ``host_waits`` those in
    which the device waits for the host to prepare it.
    """

    forward: np.ndarray
    backward: np.ndarray
    forward_ends: np.ndarray
    backward_ends: np.ndarray
    sharding_exposed: np.ndarray
    host_waits: np.ndarray
    sharded: np.ndarray
    exchanges: InEachPass | None = None
    copied_exposed: np.ndarray | float = 0.0
    """Exposed seconds of copies between tiers, shape (classes, plans)."""

    def longest(self, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The longest backward and forward pass of the classes of a mask, shape (plans,)."""
        backward, forward = np.where(classes, [self.backward, self.forward], 0.0).max(axis=1)
        return backward, forward

    def sharding(self, stage_class: np.ndarray) -> Cost:
        """Communication of sharded parameters in one micro batch of a class of stage, shape (plans,)."""
        if self.exchanges is None:
            return Cost.none(stage_class.shape)
        classes = np.arange(len(self.forward))[:, np.newaxis]
        cost = (self.exchanges.cost * (classes == stage_class[self.sharded])).sum()
        return cost[np.maximum(np.cumsum(self.sharded) - 1, 0)] * self.sharded


def predict(setting: Setting, plans: Plans) -> Step:
    """Predict the step time of each plan.

    Args:
        setting: inputs that all plans share.
        plans: the plans.

    Returns:
        Times and breakdown in seconds, shape (plans,).
    """
    setting = setting.of(plans)
    stages = Stages.of(setting, plans)
    counts = parameters(setting, plans, stages)
    pieces = components(plans, stages, counts.ops)
    m = micro_batches(setting, plans)
    passes = stage_times(setting, plans, stages, counts, pieces)
    transfer = boundary_transfer(setting, plans) * (plans.pipeline > 1)
    makespan, transfer_exposed, transfers = _pipeline(plans, stages, passes, m, transfer)
    busy, slowest = _slowest(stages, passes, m)
    makespan = makespan * uneven(setting, plans, passes.forward + passes.backward)
    parts, sent = breakdown(pieces, slowest, m)
    waits = setting.framework.host.fetch_seconds + of_class(slowest, passes.host_waits)
    parts["launch"] = parts["launch"] + m * waits
    largest = fullest(stages.present, counts)
    data, gradients_exposed, parameters_exposed = data_parallel_times(
        setting, plans, stages.present, counts, passes.longest(stages.present), (makespan, transfer.seconds)
    )
    tied = tied_embedding(setting, plans)
    sharding_exposed = m * of_class(slowest, passes.sharding_exposed)
    sharding = passes.sharding(slowest)
    seconds = {
        **parts,
        "pipeline": transfer_exposed,
        "bubble": makespan - transfer_exposed - busy,
        "gradients": gradients_exposed + tied.seconds,
        "parameters": parameters_exposed + sharding_exposed,
        "elementwise": parts["elementwise"] + data.gradient_kernels,
        "optimizer": data.optimizer,
    }
    sent |= {
        "gradients": data.reduce.cost * data.reductions + data.narrowed + tied,
        "parameters": data.gather.cost + data.widened + sharding * m,
        "pipeline": transfers,
    }
    off_device = placed(data.sharding)
    if off_device:
        seconds["offload"] = m * of_class(slowest, np.zeros(stages.index.shape) + passes.copied_exposed)
        rest = sum(seconds.values()) - data.optimizer
        seconds["offload"] = seconds["offload"] + update_exposed(
            data.sharding, data.owned, data.optimizer, of_class(slowest, passes.backward), rest
        )
    outer = np.zeros(len(plans))
    if synchronised_apart(data.sharding):
        inner, parameters_here = sum(seconds.values(), np.zeros(len(plans))), of_class(largest, counts.total)
        seconds["sync"], outer = outer_seconds(data.sharding, data.owned, parameters_here, inner)
    total = sum(seconds.values(), np.zeros(len(plans)))
    communication = {kind: cost.seconds for kind, cost in sent.items()}
    if "sync" in seconds:
        communication["sync"] = outer
    backward = of_class(slowest, passes.backward)
    return Step(total, seconds, communication, stages, counts, sent, backward)


def step_time(setting: Setting, plans: Plans, known_step: KnownStep | None = None) -> np.ndarray:
    """Predict the step time of each plan without its breakdown; searches do so for every candidate.

    Args:
        setting: inputs that all plans share.
        plans: the plans.
        known_step: what is known of their steps; by default nothing.

    Returns:
        Seconds, shape (plans,): those of ``predict``, to within rounding.
    """
    setting = setting.of(plans)
    if known_step is None:
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        pieces = components(plans, stages, counts.ops)
    else:
        stages, counts = known_step.stages, known_step.counts
        pieces = known_components(plans, known_step)
    return priced_time(setting, plans, stages, counts, pieces)


def priced_time(
    setting: Setting,
    plans: Plans,
    stages: Stages,
    counts: Parameters,
    pieces: list[Component],
    links: Setting | None = None,
) -> np.ndarray:
    """Seconds of steps whose components are priced, shape (plans,).

    Data-parallel collectives go over the links of ``links``, by default those of ``setting``.
    """
    m = micro_batches(setting, plans)
    passes = stage_times(setting, plans, stages, counts, pieces, links)
    transfer = boundary_transfer(setting, plans).seconds * (plans.pipeline > 1)
    makespan = _makespans(plans, stages, passes, m, transfer)[0]
    makespan = makespan * uneven(setting, plans, passes.forward + passes.backward)
    largest, slowest = fullest(stages.present, counts), _slowest(stages, passes, m)[1]
    longest = passes.longest(stages.present)
    data, gradients, gathers = data_parallel_times(
        setting, plans, stages.present, counts, longest, (makespan, transfer), links
    )
    tied = tied_embedding(setting, plans).seconds
    rest = makespan + gradients + gathers + tied + data.gradient_kernels
    step_s = (
        rest
        + data.optimizer
        + update_exposed(data.sharding, data.owned, data.optimizer, of_class(slowest, passes.backward), rest)
    )
    if synchronised_apart(data.sharding):
        step_s = step_s + outer_seconds(data.sharding, data.owned, of_class(largest, counts.total), step_s)[0]
    return step_s


def passes_time(setting: Setting, plans: Plans, known_step: KnownStep) -> np.ndarray:
    """Seconds of all passes of equal micro batches alone; arguments as in ``step_time``."""
    setting = setting.of(plans)
    pieces, m = known_components(plans, known_step), micro_batches(setting, plans)
    passes = stage_times(setting, plans, known_step.stages, known_step.counts, pieces)
    transfer = boundary_transfer(setting, plans).seconds * (plans.pipeline > 1)
    return _makespans(plans, known_step.stages, passes, m, transfer)[0]


def _slowest(stages: Stages, passes: StageTimes, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Busy seconds of the slowest class of stage, and the class, shape (plans,)."""
    busy = np.where(stages.present, m * (passes.forward + passes.backward), 0.0)
    return busy.max(axis=0), first_largest(busy)


def breakdown(
    pieces: list[Component], stage_class: np.ndarray, times: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, Cost]]:
    """Micro batches on one class of stage: seconds by part, and communication."""
    nothing = Cost.none(times.shape)
    parts = {name: nothing.seconds for piece in pieces for name in piece.parts}
    sent = {name: nothing for piece in pieces for name in piece.sent}
    for piece in pieces:
        weight = times * of_class(stage_class, piece.count)
        # Most components lack most parts.
        for name, seconds in piece.parts.items():
            if seconds.any():
                parts[name] = parts[name] + weight * seconds[piece.index]
        for name, cost in piece.sent.items():
            if cost.seconds.any():
                sent[name] = sent[name] + weight * cost[piece.index]
    return parts, sent


def stage_times(
    setting: Setting,
    plans: Plans,
    stages: Stages,
    counts: Parameters,
    pieces: list[Component],
    links: Setting | None = None,
) -> StageTimes:
    """Time one micro batch on each class of stage; ``links`` as in ``priced_time``."""
    forward, backward, exposed, waits = (np.zeros(stages.index.shape) for _ in range(4))
    for piece in pieces:
        forward += piece.count * piece.forward
        backward += piece.count * piece.backward
    forward_ends, backward_ends = _ends(stages, pieces)
    if plans.overlap_expert.any():
        forward, backward = in_fixed_shares(setting, plans, forward, backward)
        forward_ends, backward_ends = in_fixed_shares(setting, plans, forward_ends, backward_ends)
    waits[[FIRST, LAST]] = setting.mask_seconds(plans)
    reads, single = setting.read_seconds(plans), plans.pipeline == 1
    waits[LAST] += np.where(single, 0.0, reads)
    forward_ends += waits[[FIRST, LAST]]
    waits[FIRST] += np.where(single, reads, 0.0)
    forward += setting.framework.host.fetch_seconds + waits
    sharding, exchanges = Sharding(setting, plans), None
    index = np.flatnonzero(sharding.parameters)
    if len(index):
        times = forward, backward, exposed, waits, forward_ends, backward_ends
        exchanges = _share_passes(links or setting, plans.take(index), stages, counts, index, times)
    # Copies between tiers run beside kernels and beside what these wait for.
    copied = copied_exposed(sharding, stages, counts, forward, backward)
    passes = forward + copied[0], backward + copied[1], forward_ends, backward_ends
    return StageTimes(*passes, exposed, waits, sharding.parameters, exchanges, copied[0] + copied[1])


def _share_passes(
    links: Setting,
    plans: Plans,
    stages: Stages,
    counts: Parameters,
    index: np.ndarray,
    times: tuple[np.ndarray, ...],
) -> InEachPass:
    """Add to passes what their exchange of sharded parameters exposes.

    Args:
        links: setting whose links carry the exchange.
        plans: those that shard parameters.
        stages, counts: of all plans.
        index: places of ``plans`` among all.
        times: forward, backward, exposed and waiting seconds of all plans, and forward and backward ones of
            the model's ends, changed in place.
    """
    forward, backward, exposed, waits, *ends = times
    sharding = Sharding(links, plans)
    layers, dense, experts, ahead, behind = (
        taken(values, index) for values in (stages.total, counts.dense, counts.experts, forward, backward)
    )
    gathered, m = np.maximum(np.ceil(layers), 1), micro_batches(links, plans)
    exchanges = InEachPass.of(sharding, gathered, dense, experts, m)
    unhidden = exchanges.exposed(ahead, behind)
    host = host_waits(sharding, gathered, m)
    if (plans.virtual_pipeline > 1).any():
        here = [taken(end, index) for end in ends]
        surplus = taken(stages.surplus, index).sum(axis=1) / gathered[[FIRST, LAST]]
        beyond = _ends_exposed(plans, exchanges, (ahead, behind), here, surplus, unhidden)
        for end, end_passes, added, waited in zip(ends, here, beyond, host, strict=True):
            put(end, index, end_passes + added + surplus * waited[[FIRST, LAST]])
    put(forward, index, ahead + (unhidden[0] + host[0]))
    put(backward, index, behind + (unhidden[1] + host[1]))
    put(exposed, index, unhidden[0] + unhidden[1])
    put(waits, index, taken(waits, index) + (host[0] + host[1]))
    return exchanges


def _ends_exposed(
    plans: Plans,
    exchanges: InEachPass,
    passes: tuple[np.ndarray, np.ndarray],
    ends: list[np.ndarray],
    surplus: np.ndarray,
    unhidden: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Exposed seconds of the model's ends beyond those of the other chunks of their stages, shape (2, plans).

    A chunk exposes what its own kernels do not hide: an end of the model may have other layers and other
    kernels than the rest of its stage.

    Args:
        plans: those that shard parameters.
        exchanges: of all classes of stage.
        passes: forward and backward of each class of stage, shape (classes, plans).
        ends: forward and backward of the ends beyond those of other chunks, shape (2, plans).
        surplus: layers that the ends have beyond, as a share of those of their stages, shape (2, plans).
        unhidden: exposed seconds of passes of each class, shape (classes, plans), changed in place.
    """
    rows, chunks, several = [FIRST, LAST], plans.virtual_pipeline, plans.virtual_pipeline > 1
    share = (1 - surplus) / chunks
    work = [(stage_pass[rows] - end) / chunks for stage_pass, end in zip(passes, ends, strict=True)]
    inside = exchanges.part(rows, share).exposed(*work)
    outside = exchanges.part(rows, share + surplus).exposed(
        *(np.maximum(kernels + end, 0.0) for kernels, end in zip(work, ends, strict=True))
    )
    for exposed, inner, end in zip(unhidden, inside, outside, strict=True):
        exposed[rows] = np.where(several, (chunks - 1) * inner + end, exposed[rows])
    first, second = (end - inner for end, inner in zip(outside, inside, strict=True))
    return first, second


def _ends(stages: Stages, pieces: list[Component]) -> np.ndarray:
    """Forward and backward of the model's first and last position beyond the other chunks of their stages.

    Seconds, shape (2 directions, 2 ends, plans).
    """
    ends = np.array([[end.forward for end in pieces[-2:]], [end.backward for end in pieces[-2:]]])
    for surplus, layer in zip(stages.surplus.swapaxes(0, 1), pieces, strict=False):
        if surplus.any():
            ends += surplus * np.stack([layer.forward, layer.backward])[:, np.newaxis]
    return ends


def _pipeline(
    plans: Plans, stages: Stages, passes: StageTimes, m: np.ndarray, transfer: Cost
) -> tuple[np.ndarray, np.ndarray, Cost]:
    """Makespan of the pipeline, the part of it that transfers cause, and the cost of all transfers."""
    makespan, without = _makespans(plans, stages, passes, m, transfer.seconds, np.zeros(len(plans)))
    transfers = transfer * (2 * m * plans.virtual_pipeline)
    # Any further delay comes from transfers of other ranks while the pipeline fills: a bubble.
    return makespan, np.minimum(makespan - without, transfers.seconds), transfers


def _makespans(
    plans: Plans, stages: Stages, passes: StageTimes, m: np.ndarray, *transfers: np.ndarray
) -> list[np.ndarray]:
    """Makespans of the pipeline under different seconds of a transfer, all in one evaluation."""
    makespans, sent = np.zeros((len(transfers), len(plans))), np.stack(transfers)
    forward, backward = stages.by_run(passes.forward), stages.by_run(passes.backward)
    for name, of_schedule in plans.by_schedule:

        def of(values: np.ndarray, of_schedule: np.ndarray | slice = of_schedule) -> np.ndarray:
            return taken(values, of_schedule)[:, np.newaxis]

        pipeline = PipelineTimes(
            stages=plans.pipeline[of_schedule],
            micro_batches=m[of_schedule],
            chunks=plans.virtual_pipeline[of_schedule],
            lengths=of(stages.lengths),
            forward=of(forward),
            backward=of(backward),
            forward_ends=of(passes.forward_ends),
            backward_ends=of(passes.backward_ends),
            transfer=of(sent)[:, 0],
            overlap_transfer=plans.overlap_pipeline[of_schedule],
        )
        put(makespans, of_schedule, makespan_of(get_schedule(name), pipeline))
    return list(makespans)


def fullest(classes: np.ndarray, counts: Parameters) -> np.ndarray:
    """The class of stage with most parameters of those that a mask names, shape (plans,)."""
    return first_largest(np.where(classes, counts.total, 0.0))


def work_once(
    setting: Setting, plans: Plans, classes: np.ndarray, counts: Parameters, links: Setting | None = None
) -> tuple[Sharding, OnceAStep]:
    """How the state of the fullest stage is sharded, and its work once a step: ``data_parallel_times``."""
    largest = fullest(classes, counts)
    dense, experts = of_class(largest, counts.dense), of_class(largest, counts.experts)
    sharding = Sharding(links or setting, plans)
    return sharding, once_a_step(sharding, dense, experts, micro_batches(setting, plans))


def data_parallel_times(
    setting: Setting,
    plans: Plans,
    classes: np.ndarray,
    counts: Parameters,
    longest: tuple[np.ndarray, np.ndarray],
    pipeline: tuple[np.ndarray, np.ndarray],
    links: Setting | None = None,
) -> tuple[OnceAStep, np.ndarray, np.ndarray]:
    """Once-a-step work of the fullest stage, and the exposed seconds of its reductions and its gathering.

    Args:
        setting: what the plans share.
        plans: the plans.
        classes: the classes of stages that count, shape (classes, plans).
        counts: parameters of each class of stage.
        longest: seconds of the longest backward and forward pass of any stage, shape (plans,).
        pipeline: seconds of all passes and of one transfer between stages, shape (plans,).
        links: as in ``priced_time``.
    """
    sharding, step = work_once(setting, plans, classes, counts, links)
    m, (backward, forward) = micro_batches(setting, plans), longest
    windows, cycles = _windows(plans, m)
    makespan, transfer = pipeline
    hops = plans.virtual_pipeline * np.where(plans.overlap_pipeline, plans.pipeline, cycles)
    passes = Passes(makespan, cycles, 2 * hops * transfer, forward, backward, windows)
    reduced, gathered = exposed_once(sharding, step, passes, m)
    return step, reduced + step.narrowed.seconds, gathered + step.widened.seconds


def _windows(plans: Plans, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows and cycles of ``Passes``, shape (plans,) each.

    Schedules without a closed form fill their bubbles: their steps are bounds, of ``m`` cycles.
    """
    # A batch smaller than a micro batch of each replica has no pass, and is refused elsewhere.
    windows, cycles = np.ones(len(plans)), np.maximum(m, 1.0) + np.zeros(len(plans))
    for name, of_schedule in plans.by_schedule:
        p, v, schedule = plans.pipeline[of_schedule], plans.virtual_pipeline[of_schedule], get_schedule(name)
        windows[of_schedule] = schedule.window(p, m[of_schedule], v)
        if schedule.has_closed_form:
            cycles[of_schedule] += (p - 1) / v
    return windows, cycles
