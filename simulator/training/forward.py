"""Forward passes alone: log-probabilities, rewards and values of given sequences."""

from __future__ import annotations

import numpy as np

from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training.analytic import stage_times
from simulator.training.boundary import boundary_transfer
from simulator.training.components import components
from simulator.training.counts import micro_batches


def forward_seconds(setting: Setting, plans: Plans) -> np.ndarray:
    """Seconds of the forward passes of one step's micro batches, s, shape (plans,).

    A pipeline of forward passes takes those of its slowest stage, and one more for each stage before it;
    sends run beside the passes but for the first micro batch.
    """
    setting = setting.of(plans)
    stages = Stages.of(setting, plans)
    counts = parameters(setting, plans, stages)
    times = stage_times(setting, plans, stages, counts, components(plans, stages, counts.ops))
    slowest = np.where(stages.present, times.forward, 0.0).max(axis=0)
    fill = plans.pipeline - 1
    passes = (micro_batches(setting, plans) + fill) * slowest
    return passes + fill * boundary_transfer(setting, plans).seconds
