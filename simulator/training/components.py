"""Components of stages: layers of each kind and the two ends of the model, for one micro batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from core.records import record
from hwmodels.collectives.cost import Cost
from simulator.layout.model_ops import LeverOps, ModelOps
from simulator.layout.parameters import Parameters
from simulator.layout.stages import FIRST, LAST, Stages
from simulator.plan import Plans, taken
from simulator.training.ends import End, embedding_passes, head_passes
from simulator.training.expected import expected_passes
from simulator.training.layer import Layer
from simulator.training.overlap import NO_TRANSFER
from simulator.training.pass_costs import PassCosts
from simulator.training.work import price_passes


@record()
class Component:
    """A layer or an end of the model, for one micro batch on one device; seconds, arrays of shape (plans,).

    ``count`` is their number in each class of stage, shape (classes, plans). ``parts`` and ``sent``
    (communication by kind) are those of both directions, of the plans that differ; ``index`` says which of
    these each plan is.
    """

    count: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    parts: dict[str, np.ndarray]
    sent: dict[str, Cost]
    index: np.ndarray


class LayerSeconds(NamedTuple):
    """Seconds of one layer of each kind, or of each end, shape (kinds, plans).

    ``backward`` counts recomputation.
    """

    forward: np.ndarray
    backward: np.ndarray

    def take(self, rows: np.ndarray) -> LayerSeconds:
        """The seconds of some of the plans."""
        return LayerSeconds(taken(self.forward, rows), taken(self.backward, rows))


@record()
class KnownStep:
    """What is known of the steps of plans that differ in their levers alone.

    ``layers`` are seconds of a layer of each kind, shape (kinds, plans), ``ends`` those of the model's two
    ends, shape (2, plans).
    """

    stages: Stages
    counts: Parameters
    layers: LayerSeconds
    ends: LayerSeconds


def components(plans: Plans, stages: Stages, ops: ModelOps) -> list[Component]:
    """Components of stages: layers of each kind, then the first and the last end of the model."""
    if not ops.components:
        ops.components.extend(_pieces(part, stages) for part in ops.by_levers)
    return [
        _component(count, pieces, ops)
        for count, pieces in zip(_counts(plans, stages), zip(*ops.components, strict=True), strict=True)
    ]


def known_components(plans: Plans, known_step: KnownStep) -> list[Component]:
    """Components of known seconds, without a breakdown."""
    forward, backward = (
        np.concatenate(pair) for pair in zip(known_step.layers, known_step.ends, strict=True)
    )
    every = np.arange(len(plans))
    return [
        Component(count, ahead, behind, {}, {}, every)
        for count, ahead, behind in zip(_counts(plans, known_step.stages), forward, backward, strict=True)
    ]


def end_seconds(ops: ModelOps) -> LayerSeconds:
    """Seconds of the first and the last end of the model, shape (2, plans)."""
    ends = list(zip(*(_end_pieces(part) for part in ops.by_levers), strict=True))
    forward, backward = (
        np.array([ops.gathered([getattr(piece, name) for piece in pieces])[ops.index] for pieces in ends])
        for name in ("forward", "backward")
    )
    return LayerSeconds(forward, backward)


def _counts(plans: Plans, stages: Stages) -> list[np.ndarray]:
    """Components in each class of stage: layers of each kind, then both ends; shape (classes, plans)."""
    embedded, predicted = (np.zeros(stages.index.shape) for _ in range(2))
    embedded[FIRST] = 1.0
    predicted[FIRST], predicted[LAST] = plans.pipeline == 1, plans.pipeline > 1
    return [*(stages.layers[:, number] for number in range(len(stages.groups))), embedded, predicted]


def _component(count: np.ndarray, pieces: Sequence[_Piece], ops: ModelOps) -> Component:
    """One component of all plans, from those of each choice of levers."""
    names = dict.fromkeys(name for piece in pieces for name in piece.parts)
    return Component(
        count,
        ops.gathered([piece.forward for piece in pieces])[ops.index],
        ops.gathered([piece.backward for piece in pieces])[ops.index],
        {name: ops.gathered([piece.parts.get(name, 0.0) for piece in pieces]) for name in names},
        {name: ops.gathered_costs([piece.sent[name] for piece in pieces]) for name in pieces[0].sent},
        ops.index,
    )


class _Piece(NamedTuple):
    """A component of the plans of one choice of levers, as ``Component`` has it, shape (plans,)."""

    forward: np.ndarray
    backward: np.ndarray
    parts: dict[str, np.ndarray]
    sent: dict[str, Cost]


def _pieces(part: LeverOps, stages: Stages) -> list[_Piece]:
    """The components of the plans of one choice of levers."""
    setting, plans = part.setting, part.plans
    prices = price_passes(setting, part.embedding, part.head, part.further, *part.layers)
    pieces = []
    for layer, kind in zip(prices[3:], stages.groups, strict=True):
        passes = expected_passes(setting, plans, layer, kind)
        pieces.append(_piece(passes, [passes.recompute]))
    first, last = embedding_passes(setting, plans, prices[0]), head_passes(setting, plans, *prices[1:3])
    return [*pieces, _piece(first, []), _piece(last, [])]


def _end_pieces(part: LeverOps) -> list[_Piece]:
    """The two ends of the model of the plans of one choice of levers."""
    setting, plans = part.setting, part.plans
    prices = price_passes(setting, part.embedding, part.head, part.further)
    first, last = embedding_passes(setting, plans, prices[0]), head_passes(setting, plans, *prices[1:])
    return [_piece(first, []), _piece(last, [])]


def _piece(component: Layer | End, recompute: list[PassCosts]) -> _Piece:
    """Sum the passes of a component."""
    forward, backward = [component.forward], [component.backward_input, component.backward_weight]
    none = np.zeros_like(component.forward.seconds)
    parts: dict[str, np.ndarray] = {}
    sent: dict[str, Cost] = {name: Cost.none(none.shape) for name in ("tensor", "context", "expert")}

    def put(into: dict[str, np.ndarray], name: str, seconds: np.ndarray) -> None:
        into[name] = into.get(name, none) + seconds

    for costs in forward + backward:
        device, pace = costs.device, costs.setting.pace
        for kind, seconds in costs.work.seconds.items():
            put(parts, kind, seconds)
        put(parts, "variation", device * (pace - 1))
        put(parts, "launch", costs.kernels - device * pace)
    for costs in recompute:
        put(parts, "recompute", costs.kernels)
    parts.update(dict.fromkeys(("tensor", "context", "expert"), none))
    for costs in forward + backward + recompute:
        for name in sent:
            transfer = getattr(costs, name)
            if transfer is not NO_TRANSFER:
                put(parts, name, transfer.exposed)
                sent[name] = sent[name] + transfer.cost

    def elapsed(passes: list[PassCosts]) -> np.ndarray:
        return sum((costs.seconds for costs in passes), none)

    return _Piece(elapsed(forward), elapsed(backward + recompute), parts, sent)
