"""Passes through the two ends of the model: input embedding on the first stage, output layer and loss on the
last."""

from __future__ import annotations

from core.records import record
from simulator import ops
from simulator.layout.tower import step_tower
from simulator.ops.ends import further_prediction
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training.overlap import NO_TRANSFER, Transfer
from simulator.training.pass_costs import PassCosts
from simulator.training.work import KernelTimes, Priced, price_passes, sum_costs


@record()
class End:
    """Forward and backward pass of one end for one micro batch on one device."""

    forward: PassCosts
    backward_input: PassCosts
    backward_weight: PassCosts


def embedding(setting: Setting, plans: Plans) -> End:
    """Passes through the input embedding, and a vision tower; arrays of shape (plans,)."""
    listed = [*ops.embedding(setting.rank(plans)), *step_tower(setting, plans)]
    return embedding_passes(setting, plans, price_passes(setting, listed)[0])


def head(setting: Setting, plans: Plans) -> End:
    """Passes through final norm, output layer and loss, for each prediction; arrays of shape (plans,)."""
    rank = setting.rank(plans)
    further = further_prediction(rank) if setting.predictions else []
    return head_passes(setting, plans, *price_passes(setting, ops.head(rank), further))


def corrected_share(setting: Setting, plans: Plans, early: bool) -> End:
    """Passes that a share of a split output layer adds where its softmax is corrected later."""
    prices = price_passes(setting, ops.corrected_share(setting.rank(plans), early))[0]
    return _end(setting, plans, prices, _works(prices))


def embedding_passes(setting: Setting, plans: Plans, prices: list[Priced]) -> End:
    """The passes of the embedding's priced ops."""
    return _end(setting, plans, prices, _works(prices))


def head_passes(setting: Setting, plans: Plans, prices: list[Priced], projection: list[Priced]) -> End:
    """The passes of the priced ops of the model's own prediction and of each further one."""
    single, times = _works(prices), 1.0 + setting.predictions
    if not setting.predictions:
        return _end(setting, plans, prices, single)
    works = KernelTimes(), KernelTimes(), KernelTimes()
    for work, prediction, project in zip(works, single, _works(projection), strict=True):
        work.extend(prediction, times)
        work.extend(project, 1.0 * setting.predictions)
    return _end(setting, plans, prices, works, times)


def _works(prices: list[Priced]) -> tuple[KernelTimes, KernelTimes, KernelTimes]:
    forward, inputs, weights = (
        KernelTimes.of(entry for entry in prices if entry.op.gradient == gradient)
        for gradient in ("", "input", "weight")
    )
    return forward, inputs, weights


def _end(
    setting: Setting,
    plans: Plans,
    prices: list[Priced],
    works: tuple[KernelTimes, KernelTimes, KernelTimes],
    times: float = 1.0,
) -> End:
    def sent(backward: bool) -> Transfer:
        sends = [
            entry for entry in prices if entry.op.kind == "tensor" and bool(entry.op.gradient) is backward
        ]
        return Transfer(times * sum_costs(setting, sends, (len(plans),))) if sends else NO_TRANSFER

    forward, backward_input, backward_weight = works
    return End(
        PassCosts(forward, sent(False), NO_TRANSFER, NO_TRANSFER, setting),
        PassCosts(backward_input, sent(True), NO_TRANSFER, NO_TRANSFER, setting),
        PassCosts(backward_weight, NO_TRANSFER, NO_TRANSFER, NO_TRANSFER, setting),
    )
