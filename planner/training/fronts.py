"""Fronts of training: memory and energy against the step's time, over every scored plan of a search."""

from __future__ import annotations

import numpy as np

from core.arrays import distinct
from planner.pareto import Axis, Front, Fronts
from planner.training.confidence import confidence
from planner.training.scored_plans import ScoredPlans
from simulator.plan import Plan, concatenate
from simulator.scenario_file import scenario_of
from simulator.setting import Setting
from simulator.training import predict


def training_fronts(setting: Setting, all_plans: ScoredPlans) -> Fronts:
    """Fronts over the plans that fit.

    Args:
        setting: what the plans share.
        all_plans: plans of a search; at least one.
    """
    blocks = list(all_plans.predictions(setting))
    time = np.concatenate([block.metrics.step_time_s for block in blocks])
    kwh = np.concatenate([block.metrics.kwh_per_million_tokens for block in blocks])
    peak = np.concatenate([block.memory.peak for block in blocks])
    plans = concatenate([block.plans for block in blocks])
    step = Axis("step time, s", "step_time_s", time)
    memory = Axis("peak memory, GiB", "peak_memory_gib", peak / 2**30)
    energy = Axis("kWh per million tokens", "kwh_per_million_tokens", kwh)
    training, cluster = setting.training, setting.cluster
    fronts = [Front(step, memory), Front(step, energy)]
    on = distinct(np.concatenate([front.points for front in fronts]))
    best = plans.take(on)
    widths = confidence(setting, best, predict(setting, best)).half_width
    bands = dict(zip(on.tolist(), widths.tolist(), strict=True))
    return Fronts(
        f"{setting.model.name} on {cluster.devices:,} {cluster.device.name}, {training.words}",
        fronts,
        lambda point: _name(plans.plan(point)),
        lambda point: scenario_of(setting, plans.plan(point)),
        bands.get,
    )


def _name(plan: Plan) -> str:
    return f"{plan.describe()}, micro batch {plan.micro_batch}, recompute {plan.recompute}, ZeRO {plan.zero}"
