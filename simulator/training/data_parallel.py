"""Costs of data parallelism: gradient reduction, parameter gathering and the optimizer."""

from __future__ import annotations

import numpy as np

from core.records import record
from hwmodels.collectives.cost import Cost
from simulator.layout.stages import gathered_together
from simulator.training.overlap import Exchange, contention
from simulator.training.sharding import Sharding
from simulator.training.state_moves import move_between_levels, move_copy, move_state, sent_state

LAYER_TENSORS = 9
"""Weight tensors of a decoder layer: four of attention, three of an MLP (experts are stacked), two norms."""
HEAD_NORMS = 2
"""Those of a layer's norms of the heads of queries and keys, where a model has them."""
ADAPTER_TENSORS = 14
"""Those of a layer's adapters: two for each linear layer."""


@record()
class OnceAStep:
    """Exchanges and updates of data-parallel ranks once a step; seconds, arrays of shape (plans,).

    ``reduce`` is one of ``reductions`` rounds, each of which overlaps its own pass. Plans with sharded
    parameters exchange them in their passes (``InEachPass``) instead.
    """

    gather: Exchange
    reduce: Exchange
    reductions: np.ndarray
    gradient_kernels: np.ndarray
    optimizer: np.ndarray
    narrowed: Cost
    """Reduction of gradients from their level to the optimizer's ranks, before the update."""
    owned: np.ndarray
    """Parameters whose optimizer state a device owns."""
    sharding: Sharding
    widened: Cost
    """Gathering of parameters from the optimizer's ranks to their level, after the update."""


def once_a_step(
    sharding: Sharding, dense: np.ndarray, experts: np.ndarray, micro_batches: np.ndarray
) -> OnceAStep:
    """Reduction, gathering and update of a step.

    Args:
        sharding: of the plans.
        dense: dense parameters of one device, shape (plans,).
        experts: expert parameters of one device, shape (plans,).
        micro_batches: micro batches of a replica, shape (plans,).
    """
    setting, plans, unsharded = sharding.setting, sharding.plans, dense + experts
    many = np.ceil(sharding.buckets(unsharded))
    gather, reduce = move_state(
        sharding,
        dense,
        experts,
        np.where(plans.overlap_parameters, many, 1.0),
        np.where(plans.overlap_gradients, many, 1.0),
    )
    widened, narrowed = move_between_levels(sharding, dense, experts)
    owned = sharding.owned(dense, experts)
    tail = 1 / sharding.buckets(unsharded)
    here = ~sharding.parameters
    beside = _beside(sharding, (gather, reduce), sent_state(sharding, dense, experts))
    return OnceAStep(
        Exchange(
            gather * (sharding.optimizer & here), np.where(plans.overlap_parameters, tail, 1.0), beside[0]
        ),
        Exchange(reduce * here, np.where(plans.overlap_gradients, tail, 1.0), beside[1]),
        sharding.reductions(micro_batches),
        _gradient_kernels(sharding, owned, unsharded, micro_batches),
        setting.kernels.memory_bound(owned * setting.update_bytes, "optimizer")
        + _slice_loops(sharding) * here
        + _tensor_loops(sharding)
        + setting.framework.host.seconds_per_step,
        narrowed,
        owned,
        sharding,
        widened,
    )


def _beside(
    sharding: Sharding, costs: tuple[Cost, Cost], sent: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Share of their speed that kernels lose beside gathers and reductions, shape (..., plans).

    Args:
        sharding: of the plans.
        costs: of a gather and of a reduction.
        sent: bytes that a rank sends in each (``sent_state``).
    """
    dense, setting = sharding.dense, sharding.setting
    sizes = dense.shard, dense.shard * dense.replicas
    gathers, reductions = (
        contention(setting, size, dense.shard_stride, cost.seconds, lambda size_sent=size_sent: size_sent)
        for size, cost, size_sent in zip(sizes, costs, sent, strict=True)
    )
    return gathers, reductions


def _slice_loops(sharding: Sharding) -> np.ndarray:
    """Host seconds of loops over the slices of gathered parameters after an update, shape (plans,)."""
    setting = sharding.setting
    layers = np.ceil(setting.model.layers / sharding.plans.pipeline)
    ranks = sharding.pieces("optimizer")
    return np.where(ranks > 1, setting.framework.host.seconds_per_shard * layers * ranks, 0.0)


def _tensor_loops(sharding: Sharding) -> np.ndarray:
    """Host seconds that operators of trained tensors take around an update, shape (plans,)."""
    setting = sharding.setting
    weights = LAYER_TENSORS + HEAD_NORMS * setting.model.qk_norm
    a_layer = ADAPTER_TENSORS if setting.training.adapter is not None else weights
    layers = np.ceil(setting.model.layers / sharding.plans.pipeline)
    return setting.framework.host.seconds_per_tensor * a_layer * layers


@record()
class Passes:
    """The passes that exchanges of a step run beside; seconds, arrays of shape (plans,).

    ``makespan`` takes ``cycles`` times as long as a forward and a backward pass of a micro batch, and the
    ``transfers``, where all ranks take the same time. ``forward`` and ``backward`` are the longest passes of
    any stage. Reductions run beside ``windows`` backward passes of a rank and gathers beside as many forward
    ones (``Schedule.window``).
    """

    makespan: np.ndarray
    cycles: np.ndarray
    transfers: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    windows: np.ndarray

    def seconds(self, forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
        """Seconds of the makespan that are these shares of all forward and of all backward passes; broadcast.

        Those by which the makespan shrinks with the passes, where all ranks take the same time. Elsewhere a
        bound: a makespan is convex in the times of passes and transfers, and proportional to them, so that
        without a share of its forward passes it is at most as long as without that share of all, with the
        transfers and the longest forward passes. What is left of it rises with every pass. It did not when
        the longest passes were the windows: links also shorten those of stages that do not set the pace.
        """
        # In place: nine paths of 100,000 plans leave a cache.
        ahead, seconds = backward - forward, np.maximum(forward, backward)
        longest = np.where(ahead > 0, self.forward, -self.backward)
        longest *= ahead
        longest *= self.cycles
        seconds *= self.makespan - self.transfers
        seconds -= longest
        return np.maximum(seconds, 0.0, out=seconds)


def exposed_once(
    sharding: Sharding, step: OnceAStep, passes: Passes, micro_batches: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Exposed seconds of a step's reductions and of its gathering, shape (plans,).

    Of either exchange the longest of three paths through the step counts: all passes, and what has no kernels
    to run beside; the passes outside its windows, and all of it; all passes but those of the last chunk, and
    the last chunk of it. Each takes a sum that no faster link makes longer.

    Args:
        sharding: of the plans.
        step: the exchanges.
        passes: those of the step.
        micro_batches: micro batches of a replica, shape (plans,).
    """
    # Reductions in every pass overlap that pass only, of each chunk.
    windows = np.where(sharding.gradients, 1.0, passes.windows)
    apart = np.where(sharding.reduces_in_passes(micro_batches), sharding.plans.virtual_pipeline, 1)
    behind, reduced = _paths(sharding, step.reduce, step.reductions, windows, passes.cycles, apart)
    ahead, gathered = _paths(sharding, step.gather, 1.0, windows, passes.cycles)
    added = reduced - passes.seconds(ahead[:, np.newaxis], behind)
    reductions = added[0].max(axis=0)
    return reductions, (added + gathered[:, np.newaxis]).max(axis=(0, 1)) - reductions


def _paths(
    sharding: Sharding,
    exchange: Exchange,
    rounds: np.ndarray | float,
    windows: np.ndarray,
    cycles: np.ndarray,
    apart: np.ndarray | int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Paths of ``exposed_once``: shares of all passes that each leaves out, and seconds that it adds.

    Shape (paths, plans) each. ``apart``: parts of a round that each have a tail of their own, shape (plans,).
    """
    chunks, seconds = sharding.plans.virtual_pipeline, rounds * exchange.cost.seconds
    gained = (1 - exchange.slows) * (1 - np.minimum(exchange.tail * apart, 1.0))
    paths = [(np.zeros(len(chunks)), (1 - gained) * seconds), (rounds * windows / cycles, seconds)]
    if (chunks > 1).any():
        paths.append((rounds / (chunks * cycles), seconds / chunks))
    shares, added = zip(*paths, strict=True)
    return np.stack(shares), np.stack(added)


def _gradient_kernels(
    sharding: Sharding, owned: np.ndarray, unsharded: np.ndarray, micro_batches: np.ndarray
) -> np.ndarray:
    """Seconds to accumulate separate gradients of autograd, and to copy gradients into and out of buckets.

    Args:
        sharding: of the plans.
        owned: parameters whose sharded state one device holds, shape (plans,).
        unsharded: parameters of one device before sharding, shape (plans,).
        micro_batches: micro batches of a replica, shape (plans,).
    """
    setting, plans = sharding.setting, sharding.plans
    framework = setting.framework
    unsharded = unsharded * setting.trained
    often = sharding.gradients & ~sharding.unsharded(micro_batches)
    added = np.where(often, owned, unsharded) * (0 if framework.gradients.adds_first else 3)
    copied = np.where(plans.data * plans.context > 1, framework.gradients.copy_passes * unsharded, 0.0)
    copied = copied * np.where(often, micro_batches, 1)
    bytes_moved = sharding.setting.choices.gradient_bytes * (added * (micro_batches - 1) + copied)
    return np.where(bytes_moved > 0, setting.kernels.memory_bound(bytes_moved), 0.0)


FORWARD_LOOPS = 1 / 6
"""Share of a micro batch's loops over the ranks that its forward pass makes: with full recomputation
parameters are gathered three times, and reductions make as many loops as gathers."""
BACKWARD_GATHERS, REDUCTIONS = 2, 3
"""Loops of its backward pass, over the ranks that share parameters and over those that share gradients."""


def host_waits(
    sharding: Sharding, layers: np.ndarray, micro_batches: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a forward and of a backward pass in which the device waits for loops over the ranks.

    Args:
        sharding: of the plans.
        layers: layers on one device, gathered layer by layer, shape (..., plans).
        micro_batches: micro batches of a replica, shape (plans,).
    """
    together = gathered_together(sharding.plans, micro_batches)
    gathered, reduced = (sharding.group(kind).shard for kind in ("parameters", "gradients"))
    a_rank = layers * sharding.setting.framework.host.seconds_per_rank / together
    behind = (BACKWARD_GATHERS * gathered + REDUCTIONS * reduced) / (BACKWARD_GATHERS + REDUCTIONS)
    return a_rank * gathered * FORWARD_LOOPS, a_rank * behind * (1 - FORWARD_LOOPS)


@record()
class InEachPass:
    """Communication of sharded parameters (ZeRO-3, FSDP) in one micro batch of one stage.

    Parameters are gathered before each use and gradients reduce-scattered, layer by layer, overlapping
    kernels. The first gather and the last reduction of a pass overlap nothing (Zhao et al. 2023, PyTorch
    FSDP, section 3.3). Where micro batches share a gather, each counts its part of it.
    """

    forward: Exchange
    backward: Exchange
    reduce: Exchange

    @classmethod
    def of(
        cls,
        sharding: Sharding,
        layers: np.ndarray,
        dense: np.ndarray,
        experts: np.ndarray,
        micro_batches: np.ndarray,
    ) -> InEachPass:
        """The exchanges of one micro batch; costs of shape (..., plans).

        Args:
            sharding: of the plans.
            layers: layers on one device, each its own FSDP unit, shape (..., plans).
            dense: dense parameters of one device, shape (..., plans).
            experts: expert parameters of one device, shape (..., plans).
            micro_batches: micro batches of a replica, shape (plans,).
        """
        part = 1 / gathered_together(sharding.plans, micro_batches)
        gather, reduce = move_state(sharding, dense, experts, layers * sharding.gather_calls, layers)
        copied = move_copy(sharding, dense, experts, layers * sharding.gather_calls, gather)
        sent = sent_state(sharding, dense, experts)
        gathers, reductions = _beside(sharding, (gather, reduce), sent)
        again = _beside(sharding, (copied, reduce), sent)[0] if copied is not gather else gathers
        layer = (dense + experts) / layers
        ahead = np.where(sharding.prefetches(layer), 1 / layers, 1.0)
        beside = sharding.plans.overlap_gradients.astype(bool) & ~sharding.in_turn(layer)
        behind = np.where(beside, 1 / layers, 1.0)
        often = 1 / np.where(sharding.unsharded(micro_batches), micro_batches, 1)
        return cls(
            Exchange(part * gather, ahead, gathers),
            Exchange(part * sharding.backward_gathers(layer) * copied, ahead, again),
            Exchange(often * part * reduce, behind, reductions),
        )

    def part(self, rows: list[int], share: np.ndarray) -> InEachPass:
        """A share of the exchanges of some classes of stage; shape of the share (rows, plans)."""
        return InEachPass(*(each.part(rows, share) for each in (self.forward, self.backward, self.reduce)))

    @property
    def cost(self) -> Cost:
        """Cost of all exchanges."""
        return self.forward.cost + self.backward.cost + self.reduce.cost

    def exposed(self, forward: np.ndarray, backward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Exposed seconds beside the kernels of a forward and of a backward pass.

        Passes and seconds have shape (..., plans).

        Gathers and reductions share one network: reductions overlap the kernels that gathers leave free.
        """
        gathers = self.backward
        left = np.maximum(backward - gathers.cost.seconds * (1 - gathers.tail), 0.0)
        return self.forward.exposed(forward), gathers.exposed(backward) + self.reduce.exposed(left)
