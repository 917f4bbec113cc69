"""Activations that autograd keeps of a micro batch, and those of the micro batches in flight.

They follow Korthikanti et al. 2022, section 4, tensor by tensor: what autograd keeps for the backward pass of
each kernel that ``simulator.ops`` lists. The schedule says how many micro batches are in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.layout.model_ops import LeverOps, ModelOps
from simulator.layout.stages import FIRST, Stages
from simulator.models import LayerKind, Model
from simulator.ops.op import Collective
from simulator.plan import FULL, SELECTIVE, Plans, put, taken
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.training.counts import micro_batches
from simulator.training.modules import frees, repeats

UNSEEN = ("nvfp4",)
"""Formats whose products are functions of their own, which a list of torch's ops does not name: all are
repeated (torchao, prototype/mx_formats; torchtitan, activation_checkpoint.py)."""


class LossMemory(NamedTuple):
    """Bytes of logits and what is as large, shape (classes, plans).

    ``peak`` are held while the loss and its gradient are computed, before any layer runs backward;
    ``after`` while layers run backward.
    """

    peak: np.ndarray
    after: np.ndarray


class Kept(NamedTuple):
    """Bytes that one layer keeps of one micro batch, shape (plans,).

    ``between_passes`` live from the forward pass to the backward pass; ``reopened`` are recomputed
    just before the backward pass; ``gradients`` are allocated in it beside them.
    """

    between_passes: np.ndarray
    reopened: np.ndarray
    gradients: np.ndarray


def kept_by_layers(setting: Setting, plans: Plans, groups: Iterable[LayerKind], ops: ModelOps) -> list[Kept]:
    """What one layer of each kind keeps of one micro batch on the rank that is fullest over all layers.

    It is read off the layer's list of ops, whose ranks are the busiest of their layer (``kept_by_busiest``).
    """
    if setting.over_layers is not setting:
        setting = setting.over_layers
        ops = ModelOps.of(setting, plans, groups)
    return kept_by_busiest(setting, plans, groups, ops)


def kept_by_busiest(setting: Setting, plans: Plans, groups: Iterable[LayerKind], ops: ModelOps) -> list[Kept]:
    """What one layer of each kind keeps of one micro batch on the rank of ``ops``."""
    kept_by_kind = []
    for number, kind in enumerate(groups):
        boundary = boundary_bytes(setting, plans, kind.mixer)
        every = zip(*(_saved(part, number, kind) for part in ops.by_levers), strict=True)
        saved, core, passing, sent = (ops.gathered(sizes) for sizes in every)
        between, again = _kept(setting, ops.plans, kind, saved, core, sent)
        # The gradient of the layer's output is there until its backward pass ends.
        kept_by_kind.append(Kept(between[ops.index], again[ops.index], passing[ops.index] + boundary))
    return kept_by_kind


def _saved(part: LeverOps, number: int, kind: LayerKind) -> tuple[np.ndarray, ...]:
    """Bytes that autograd keeps of one layer, all and those that selective recomputation discards.

    The third are those that the backward pass of one op allocates at most beside them, the fourth those that
    dispatch to experts and combination return.
    """
    named = part.setting.choices.recompute_modules
    names = ("core_attn",) if named is None else named
    saved, core, passing, sent = np.zeros((4, len(part.plans)))
    for op in part.layers[number]:
        saved = saved + op.saved
        passing = np.maximum(passing, op.passing)
        sent = sent + (op.results if isinstance(op, Collective) else 0.0)
        if frees(op, names, kind.experts):
            core = core + op.saved
        elif repeats(op, names, kind.experts):
            core = core + op.intermediate
    return saved, core, passing, sent


def _kept(
    setting: Setting,
    plans: Plans,
    kind: LayerKind,
    saved: np.ndarray,
    core: np.ndarray,
    sent: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes between the passes, and recomputed ones, from all and those that selective recomputation frees.

    ``sent`` are those that dispatch to experts and combination return.
    """
    model, width = setting.model, setting.width
    tokens, t = setting.tokens(plans, kind.mixer), plans.tensor
    boundary = boundary_bytes(setting, plans, kind.mixer)
    named = (plans.recompute_modules >= 0) | (setting.choices.recompute_modules is not None)
    selective = saved - core
    if setting.framework.selective == "all-but-projections":
        projected = model.query_width + 2 * model.kv_width + model.hidden
        selective = np.where(named, selective, boundary + width * tokens * projected / t)
    if setting.framework.selective == "every-other-product":
        seen = setting.training.precision not in UNSEEN
        result = _every_other_result(model, kind.experts) if seen else model.query_width
        selective = np.where(named, selective, boundary + width * tokens * result / t + sent)
    full, partly = plans.recompute == FULL, plans.recompute == SELECTIVE
    share = np.where(plans.sequence_parallel, 1, t) if setting.framework.memory.partitioned_inputs else 1
    between = np.where(full, boundary / share, np.where(partly, selective, saved))
    return between, np.where(full, saved, np.where(partly, saved - selective, 0.0))


def boundary_bytes(setting: Setting, plans: Plans, mixer: str = "full") -> np.ndarray:
    """Bytes of the input of a layer with a kind of attention on one device, shape (plans,)."""
    spread = np.where(plans.sequence_parallel, plans.tensor, 1)
    return setting.width * setting.tokens(plans, mixer) * setting.model.hidden / spread


def held_activations(
    setting: Setting,
    plans: Plans,
    stages: Stages,
    kept_layers: Iterable[Kept],
    flight: np.ndarray | None = None,
    loss: LossMemory | None = None,
) -> np.ndarray:
    """Activations held at the peak: those in flight, and one recomputed layer or what the loss holds.

    Layers are recomputed in their backward passes, after the loss and its gradient.

    Args:
        setting: what the plans share.
        plans: the plans.
        stages: their layers.
        kept_layers: what one layer of each kind keeps, shape (..., plans).
        flight: micro batches in flight (``in_flight``), where known.
        loss: what the loss holds, to count it.

    Returns:
        Bytes, shape (..., classes, plans).
    """
    flight = in_flight(setting, plans, stages) if flight is None else flight
    between, reopened = between_and_reopened(setting, plans, stages, kept_layers, flight)
    return _into(np.add, between, reopened if loss is None else with_loss(reopened, loss))


def between_and_reopened(
    setting: Setting, plans: Plans, stages: Stages, kept_layers: Iterable[Kept], flight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of the micro batches in flight, and of the layer whose backward pass runs.

    Arguments as in ``held_activations``; bytes of shape (..., classes, plans), or (..., 1, plans) where they
    are the same on all classes.
    """
    activations, reopened = np.zeros(()), np.zeros(())
    alone = len(stages.groups) == 1
    # Shapes (..., classes, plans) are large: they are added in place once they are there.
    for number, layer in enumerate(kept_layers):
        layers = stages.layers[:, number]
        between, again, gradients = (np.expand_dims(np.asarray(part), -2) for part in layer)
        again = again + gradients
        again = again if alone else np.where(layers > 0, again, 0.0)
        between = flight * layers * between
        activations = _into(np.add, activations, between) if number else between
        reopened = _into(np.maximum, reopened, again) if number else again
    if setting.dropout:
        activations[..., FIRST, :] += flight[FIRST] * boundary_bytes(setting, plans) / 2
    return activations, reopened


def with_loss(reopened: np.ndarray, loss: LossMemory) -> np.ndarray:
    """Bytes of the layer whose backward pass runs, or before it of the loss, shape (..., classes, plans)."""
    later = reopened + loss.after
    return _into(np.maximum, later, loss.peak)


def _into(function: np.ufunc, first: np.ndarray, second: ArrayLike) -> np.ndarray:
    """The function of two arrays, in the first where it has the shape of the result."""
    fits = np.ndim(second) <= first.ndim and all(
        width in (1, wide) for width, wide in zip(np.shape(second)[::-1], first.shape[::-1], strict=False)
    )
    return function(first, second, out=first) if fits else function(first, second)


def _every_other_result(model: Model, experts: bool) -> float:
    """Elements that a layer keeps of each token where every other product is repeated.

    The results of attention and of the query, value, gate and down products. The products of routed experts
    are all repeated; what dispatch and combination return is kept (torchtitan, activation_checkpoint.py and
    parallelize.py: the list of saved ops has all_to_all_single, or deepep::dispatch and deepep::combine).
    """
    down = model.hidden if model.gated else 0
    inner = model.feed_forward + down
    if experts and model.moe:
        moe = model.moe
        inner = moe.shared_experts * moe.shared_feed_forward + (down if moe.shared_experts else 0)
    return 2 * model.query_width + model.kv_width + inner


def in_flight(setting: Setting, plans: Plans, stages: Stages) -> np.ndarray:
    """Micro batches whose activations a stage of each class holds at the peak, shape (classes, plans)."""
    m = micro_batches(setting, plans)
    stage = np.where(stages.present, stages.index, np.minimum(1, plans.pipeline - 1))
    flight = np.zeros(stage.shape)
    for name, of_schedule in plans.by_schedule:
        shape = plans.pipeline[of_schedule], m[of_schedule], plans.virtual_pipeline[of_schedule]
        put(flight, of_schedule, get_schedule(name).in_flight(*shape, taken(stage, of_schedule)))
    return flight
