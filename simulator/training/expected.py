"""Expected seconds of layers: gains of levers beyond the runs that measured them are expected in part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from simulator.layout.model_ops import layer_lists
from simulator.levers import ENTRIES
from simulator.models import LayerKind
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training.domains import OVERLAP, DomainLever, Nearness, contained, used, usual, waiting
from simulator.training.layer import Layer, layer_ops, layer_passes
from simulator.training.work import Priced, price_passes, with_routed


def layers(setting: Setting, plans: Plans) -> list[Layer]:
    """Cost of one layer of each kind that the model has."""
    kinds = setting.model.layer_groups
    prices = price_passes(setting, *layer_lists(setting, plans, kinds))
    return [expected_passes(setting, plans, ops, kind) for ops, kind in zip(prices, kinds, strict=True)]


def expected_passes(setting: Setting, plans: Plans, prices: list[Priced], kind: LayerKind) -> Layer:
    """The passes of one layer, with the waits that gains which no run near measured are expected to leave."""
    layer = layer_passes(setting, plans, prices, kind)
    if not kind.experts or not len(plans):
        return layer
    factor, before = np.ones(len(plans)), _seconds(layer)
    places = Nearness(setting, plans)
    for lever, value, after, parts in _without(setting, plans, prices, kind):
        gains = {part: np.log(after / seconds) for part, seconds in parts.items()}
        waits = waiting(places, lever, value, np.log(after / before), gains, graphs=setting.graphs)
        # Settings hold the other levers; the overlap is each plan's own.
        factor = factor * (np.where(plans.overlap_expert, waits, 1.0) if lever == OVERLAP else waits)
        before = after
    if (factor == 1.0).all():
        return layer
    passes = ("forward", "backward_input", "backward_weight")
    costs = {name: getattr(layer, name) for name in passes}
    return replace(
        layer, **{n: replace(each, unproven=each.seconds * (factor - 1)) for n, each in costs.items()}
    )


def _without(
    setting: Setting, plans: Plans, prices: list[Priced], kind: LayerKind
) -> Iterator[tuple[DomainLever, str, np.ndarray, dict[str, np.ndarray]]]:
    """Levers in the order in which gains are counted.

    Each with its value, the seconds of a layer without it and those before, and the seconds with each value
    that does a part of it. Each gain is that over the levers which follow, so that it does not depend on
    those before.
    """

    def repriced(lever: DomainLever, smaller_setting: Setting) -> list[Priced]:
        """Priced ops with another value of a lever."""
        if ENTRIES[lever].acts_on == "passes":
            return prices
        return with_routed(smaller_setting, prices, layer_ops(smaller_setting, plans, kind))

    for lever, value in used(setting, bool(plans.overlap_expert.any())).items():
        names = contained(setting, lever, value)
        smaller = {name: setting.with_choices(**{lever: name}) for name in names}
        parts = {
            name: _seconds(layer_passes(smaller_setting, plans, repriced(lever, smaller_setting), kind))
            for name, smaller_setting in smaller.items()
        }
        if lever == "overlap_expert":
            plans = replace(plans, overlap_expert=np.zeros_like(plans.overlap_expert))
        else:
            setting = setting.with_choices(**{lever: usual(setting, lever)})
            prices = repriced(lever, setting)
        yield lever, value, _seconds(layer_passes(setting, plans, prices, kind)), parts


def gains(setting: Setting, plans: Plans) -> dict[DomainLever, np.ndarray]:
    """Predicted gain of each lever in a layer with experts, shape (plans,) each; the waits left away."""
    kind = next(kind for kind in setting.model.layer_groups if kind.experts)
    prices = price_passes(setting, layer_ops(setting, plans, kind))[0]
    by_lever, before = {}, _seconds(layer_passes(setting, plans, prices, kind))
    for lever, _, after, _ in _without(setting, plans, prices, kind):
        by_lever[lever], before = np.log(after / before), after
    return by_lever


def _seconds(layer: Layer) -> np.ndarray:
    passes = layer.forward, layer.backward_input, layer.backward_weight
    return sum((costs.seconds for costs in passes), np.zeros(()))
