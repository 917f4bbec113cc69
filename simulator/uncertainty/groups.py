"""The band of a step on a cluster of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.placement import MixedSetting
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.training import predict
from simulator.uncertainty.bands import band
from simulator.uncertainty.errors import model_errors

if TYPE_CHECKING:
    from simulator.training.mixed import MixedStep


def mixed_half_width(setting: MixedSetting, plan: Plan, step: MixedStep) -> float | None:
    """Relative half-width of the 90 % band of a mixed step; None where its schedule has no closed form.

    The widest of the bands that the plan has on each group's devices alone, widened as that of a plan that no
    measured run bears out: no step of a mixed cluster was measured.
    """
    if not get_schedule(plan.schedule).has_closed_form:
        return None
    widths = []
    for group in step.groups:
        alone, plans = setting.on(group.share, plan), Plans.of(group.share.plan(plan))
        widths.append(float(band(alone, predict(alone, plans))[0]))
    return model_errors().unproven * max(widths)
