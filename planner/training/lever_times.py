"""Layer times of every combination of levers, priced once for each distinct shape of a layer.

Dispatcher and expert kernels change only the routed part of a layer's ops; graphs, overlap and recomputed
modules act on priced ops. All combinations share the price of a shape, and a plan looks its times up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from core.records import record
from planner.training.lever_bytes import SHAPE_FIELDS, distinct_shapes, in_sets
from planner.training.lever_space import Acting, Combination, LeverSpace, Modules
from simulator.layout.model_ops import layer_lists
from simulator.models import LayerKind
from simulator.ops import Collective, Op
from simulator.ops.op import Size
from simulator.plan import Plans, concatenate, numbered
from simulator.setting import Setting
from simulator.training.combined import alone_share
from simulator.training.components import LayerSeconds
from simulator.training.domains import Nearness, contained, used, usual, waiting
from simulator.training.layer import Layer, in_graph, layer_passes, overlapped
from simulator.training.modules import repeats
from simulator.training.overlap import NO_TRANSFER
from simulator.training.pass_costs import PassCosts
from simulator.training.work import KernelTimes, Priced, price_passes, with_routed

SHARE_FIELDS = "pipeline", "virtual_pipeline", "schedule", "data", "micro_batch", "expert"
"""Plan fields that the share of passes without a partner depends on."""


@record()
class Table:
    """Seconds of one layer of each kind by combination, for distinct shapes.

    ``forward``, ``backward`` and ``repeated`` (a layer that is recomputed whole) have shape (combinations,
    kinds, shapes). ``index`` maps every plan to its shape. Shapes of layers whose plans differ in the share
    of passes without a partner are apart; ``origin`` maps them to the shapes that are priced.
    """

    space: LeverSpace
    prices: LayerPrices
    index: np.ndarray
    origin: np.ndarray
    forward: np.ndarray
    backward: np.ndarray
    repeated: np.ndarray

    @classmethod
    def of(cls, prices: LayerPrices, plans: Plans) -> Table:
        """Look the layers of plans up under every combination."""
        space = prices.space
        index, origin, share = _by_share(space, plans, prices.places(plans))

        def timed(variant: Combination) -> np.ndarray:
            """Seconds of one layer of each kind, shape (kinds, 3, shapes)."""
            seconds = prices.seconds(variant)[..., origin]
            return seconds + share * prices.unpaired(variant)[..., origin] if variant.overlaps else seconds

        seconds_of: dict[Combination, np.ndarray] = {
            variant: timed(variant) for variant in space.combinations
        }
        times = [_expected(prices, origin, variant, seconds_of, timed) for variant in space.combinations]
        forward, backward, repeated = np.moveaxis(np.array(times), 2, 0)
        return cls(space, prices, index, origin, forward, backward, repeated)

    def take(self, rows: np.ndarray) -> Table:
        """The table of some of the plans."""
        return replace(self, index=self.index[rows])

    @cached_property
    def weights(self) -> np.ndarray:
        """Layers of each kind, shape (kinds,)."""
        groups = self.space.setting.model.layer_groups
        return np.array([len(layers) for layers in groups.values()], float)

    def fastest(
        self, full: bool, overlaps: bool, among: np.ndarray | bool = True
    ) -> tuple[np.ndarray, LayerSeconds]:
        """The fastest combination of each shape and its times, shape (shapes,) and (kinds, shapes).

        Args:
            full: whether layers are recomputed whole.
            overlaps: whether the plans may overlap the exchange with experts.
            among: which combinations may be chosen, shape (combinations,); at least one that is allowed.
        """
        backward = self.backward + self.repeated if full else self.backward
        allowed = self.space.allowed(None if full else ()) & self.space.in_context(overlaps) & among
        total = np.einsum("k,ckn->cn", self.weights, self.forward + backward)
        best = _first_least(np.where(allowed[:, np.newaxis], total, np.inf))
        places = np.arange(len(self.origin))
        return best, LayerSeconds(self.forward[best, :, places].T, backward[best, :, places].T)

    def modules(self, combination: int, rows: np.ndarray) -> np.ndarray:
        """Seconds to recompute each set of modules in some priced shapes, shape (sets, kinds, rows)."""
        return self.prices.modules(self.space.combinations[combination], rows)


class LayerPrices:
    """Layers of distinct shapes, priced once for each choice of levers.

    Attributes:
        shapes: the distinct shapes of the layers of plans.
        index: every plan's, shape (plans,).
    """

    def __init__(self, space: LeverSpace, plans: Plans) -> None:
        self.space, self.setting = space, space.setting.of(plans)
        self.shapes, self.index = distinct_shapes(plans)
        self.kinds = list(self.setting.model.layer_groups)
        self.nearness = Nearness(self.setting, self.shapes)
        self._priced = _priced(space, self.setting, self.shapes, self.kinds)
        self._layers: dict[Acting, list[Layer]] = {}
        """Passes of these where no exchange with experts overlaps."""
        self._seconds: dict[Combination, np.ndarray] = {}
        self._unpaired: dict[Combination, np.ndarray] = {}
        self._repeats: dict[Acting, tuple[np.ndarray, np.ndarray]] = {}
        """Shapes that ``modules`` was asked for, and its results, shape (shapes, sets, kinds); memory of the
        other shapes is never touched."""

    def places(self, plans: Plans) -> np.ndarray:
        """The shape of every plan, whose shapes are among those that are priced, shape (plans,)."""
        shapes, index = distinct_shapes(plans)
        _, number = concatenate([self.shapes, shapes]).distinct(*SHAPE_FIELDS)
        place = np.empty(len(number), dtype=np.int64)
        place[number[: len(self.shapes)]] = np.arange(len(self.shapes))
        return place[number[len(self.shapes) :]][index]

    def seconds(self, variant: Combination) -> np.ndarray:
        """Seconds of a layer of each kind forward, backward and recomputed, shape (kinds, 3, shapes).

        All passes run beside a partner where the exchange overlaps.
        """
        if variant not in self._seconds:
            self._time(variant)
        return self._seconds[variant]

    def unpaired(self, variant: Combination) -> np.ndarray:
        """Seconds that passes without a partner add to them, shape (kinds, 3, shapes)."""
        if variant not in self._unpaired:
            self._time(variant)
        return self._unpaired[variant]

    def _time(self, variant: Combination) -> None:
        passes = self._passes(variant)
        self._seconds[variant] = np.array([_seconds(layer) for layer in passes])
        if variant.overlaps:
            self._unpaired[variant] = np.array([_unpaired(layer) for layer in passes])

    def _passes(self, variant: Combination) -> list[Layer]:
        """Passes of a layer of each kind, all of them beside a partner where the exchange overlaps."""
        if variant.ops not in self._priced:
            changed = self.setting.with_choices(**dict(variant.ops))
            lists = layer_lists(changed, self.shapes, self.kinds)
            self._priced[variant.ops] = _repriced(changed, self._priced, lists)
        if variant.passes not in self._layers:
            changed, exposed = self.setting.with_choices(**dict(variant.passes)), self._overlapping(False)
            self._layers[variant.passes] = [
                layer_passes(changed, exposed, listed, kind)
                for listed, kind in zip(self._priced[variant.ops], self.kinds, strict=True)
            ]
        layers = self._layers[variant.passes]
        return (
            [overlapped(self._overlapping(True), layer) for layer in layers] if variant.overlaps else layers
        )

    def _overlapping(self, overlaps: bool) -> Plans:
        return replace(self.shapes, overlap_expert=np.full(len(self.shapes), overlaps))

    def modules(self, variant: Combination, rows: np.ndarray) -> np.ndarray:
        """Seconds to recompute each set of modules in some shapes, shape (sets, kinds, rows).

        Whether the exchange overlaps does not change them.
        """
        sets, count = self.space.modules, len(self.shapes)
        if variant.passes not in self._repeats:
            empty = np.empty((count, len(sets), len(self.kinds)))
            self._repeats[variant.passes] = np.zeros(count, dtype=bool), empty
        known, repeats = self._repeats[variant.passes]
        new = rows[~known[rows]]
        if len(new):
            known[new] = True
            setting = self.setting.with_choices(**dict(variant.passes))
            ops, passes = self._priced[variant.ops], self._layers[variant.passes]
            for number, (kind, listed, layer) in enumerate(zip(self.kinds, ops, passes, strict=True)):
                of_kind = _repeated_modules(setting, sets, kind, listed, layer.forward, new)
                repeats[new, :, number] = of_kind.T
        return np.moveaxis(repeats[rows], 0, -1)

    def least_seconds(self, plans: Plans) -> np.ndarray:
        """Seconds below which no combination brings a layer of the plans, shape (3, kinds, plans).

        Forward, backward and recomputed, each of its fastest combination, with all passes beside a partner
        where the exchange with experts may overlap, and without the waits of ``simulator.training.expected``.
        """
        seconds = [np.moveaxis(self.seconds(variant), 1, 0) for variant in self.space.combinations]
        apart, every = (
            np.minimum.reduce([listed for listed, runs in zip(seconds, open_, strict=True) if runs])[
                ..., self.index
            ]
            for open_ in (self.space.in_context(False), self.space.in_context(True))
        )
        return np.where(self.space.may_overlap(plans), every, apart)


def _first_least(values: np.ndarray) -> np.ndarray:
    """Index of the least value of each column; of values equal to 7 digits, the first."""
    return np.argmin(values.astype(np.float32), axis=0)


def _priced(
    space: LeverSpace, setting: Setting, shapes: Plans, kinds: Sequence[LayerKind]
) -> dict[Acting, list[list[Priced]]]:
    """Priced ops of a layer of each kind, by dispatcher and kernels."""
    priced: dict[Acting, list[list[Priced]]] = {}
    for key in dict.fromkeys(variant.ops for variant in space.combinations):
        changed = setting.with_choices(**dict(key))
        lists = layer_lists(changed, shapes, kinds)
        priced[key] = _repriced(changed, priced, lists) if priced else price_passes(changed, *lists)
    return priced


def _repriced(
    setting: Setting, priced: dict[Acting, list[list[Priced]]], lists: list[list[Op]]
) -> list[list[Priced]]:
    """Priced ops of layers under other levers; ops of routed tokens alone differ from those before."""
    first = next(iter(priced.values()))
    return [with_routed(setting, listed, ops) for listed, ops in zip(first, lists, strict=True)]


def _expected(
    prices: LayerPrices,
    origin: np.ndarray,
    variant: Combination,
    seconds_of: dict[Combination, np.ndarray],
    timed: Callable[[Combination], np.ndarray],
) -> np.ndarray:
    """Seconds of a combination with the waits of ``simulator.training.expected``, shape (kinds, 3, shapes).

    Args:
        prices: of the distinct shapes.
        origin: the priced shape of each shape.
        variant: the combination.
        seconds_of: seconds of combinations without such waits; those of further ones are added.
        timed: the seconds of a combination.
    """
    seconds, setting = seconds_of[variant], prices.setting
    experts = np.array([kind.experts for kind in setting.model.layer_groups])
    if not experts.any():
        return seconds
    changed, factor = setting.with_choices(**dict(variant.passes)), np.ones((len(seconds), seconds.shape[2]))
    plain, before = variant, _both(seconds)
    for lever, value in used(changed, variant.overlaps).items():
        names = contained(changed, lever, value)
        smaller = {name: plain.with_value(lever, name) for name in names}
        without = False if lever == "overlap_expert" else usual(changed, lever)
        # None says the same of what the setting does, and is priced once.
        plain = plain.with_value(lever, None if without == getattr(setting.choices, lever, "") else without)
        for other in (plain, *smaller.values()):
            if other not in seconds_of:
                seconds_of[other] = timed(other)
        after = _both(seconds_of[plain])
        parts = {name: np.log(after / _both(seconds_of[part])) for name, part in smaller.items()}
        waits = [
            waiting(
                prices.nearness,
                lever,
                value,
                gain,
                {n: gains[kind] for n, gains in parts.items()},
                origin,
                changed.graphs,
            )
            for kind, gain in enumerate(np.log(after / before))
        ]
        factor, before = factor * np.where(experts[:, np.newaxis], waits, 1.0), after
    return np.concatenate([seconds[:, :2] * factor[:, np.newaxis], seconds[:, 2:]], axis=1)


def _both(seconds: np.ndarray) -> np.ndarray:
    """Forward and backward seconds of a layer of each kind, shape (kinds, shapes)."""
    return seconds[:, :2].sum(axis=1)


def _by_share(
    space: LeverSpace, plans: Plans, index: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shapes apart by the share of passes without a partner: every plan's, the shape of each, its share."""
    distinct, row = plans.unique(*SHARE_FIELDS)
    share = np.where(space.may_overlap(distinct), alone_share(space.setting, distinct), 0.0)
    shares, number = np.unique(share, return_inverse=True)
    both, place = numbered(index * len(shares) + number[row], (int(index.max()) + 1) * len(shares))
    return place, both // len(shares), shares[both % len(shares)]


def _seconds(layer: Layer) -> np.ndarray:
    """Seconds forward, backward and of the recomputed layer, shape (3, shapes)."""
    backward = layer.backward_input.seconds + layer.backward_weight.seconds
    return np.array([layer.forward.seconds, backward, layer.recompute.seconds])


def _unpaired(layer: Layer) -> np.ndarray:
    """Seconds that a pass without a partner adds to those of ``_seconds``, shape (3, shapes)."""
    backward = layer.backward_input.unpaired + layer.backward_weight.unpaired
    return np.array([layer.forward.unpaired, backward, np.zeros_like(backward)])


def _repeated_modules(
    setting: Setting,
    sets: tuple[Modules, ...],
    kind: LayerKind,
    priced: list[Priced],
    first: PassCosts,
    shapes: np.ndarray,
) -> np.ndarray:
    """Seconds to recompute each set of modules of one layer of some shapes, shape (sets, shapes)."""

    def of(values: Size) -> np.ndarray:
        return np.broadcast_to(values, len(first.seconds))[shapes]

    masks, rows = [np.zeros(len(sets), bool)], [np.zeros((3, len(shapes)))]
    for op, time in priced:
        if op.gradient or op.part not in ORDER or isinstance(op, Collective):
            continue
        again = in_sets(repeats, sets, op.module, op.part, kind.experts)
        if again.any():
            from_host = not in_graph(setting.graphs, kind.experts, op)
            masks.append(again)
            rows.append(np.stack([of(time), of(op.launches) * from_host, of(op.looped) * from_host]))
    seconds, launches, looped = np.einsum("os,ocn->csn", np.array(masks, float), np.array(rows))
    attends, routes = (
        np.array([name in modules for modules in sets])[:, np.newaxis] for name in ("core_attn", "moe")
    )
    read = KernelTimes(
        {"read": of(first.after_read.device)}, of(first.after_read.launches), of(first.after_read.looped)
    )
    costs = PassCosts(
        KernelTimes({"recompute": seconds}, launches, looped),
        NO_TRANSFER,
        first.context.take(shapes).times(attends),
        first.expert.take(shapes).times(routes),
        setting,
        read,
        of(first.reads) & routes,
    )
    return np.broadcast_to(costs.seconds, seconds.shape)


ORDER = "projections", "core", "mlp", "routed", "around"
